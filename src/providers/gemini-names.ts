/** Gemini's members go by two names each, `maxOutputTokens` and `max_output_tokens`, and lists of one may be bare. */
import type { JsonObject } from "./json-members.ts";
import type { JsonRecord } from "./json-values.ts";

/** Source: https://protobuf.dev/programming-guides/json/ */
export function camelCase(name: string): string {
  return name.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}

function snakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** Both names of a member, by its camel-case one. */
export function bothNames(name: string): readonly [camel: string, snake: string] {
  return [name, snakeCase(name)];
}

/** The value under either name; undefined when there is neither. */
export function memberOf(record: JsonRecord, name: string): unknown {
  const [camel, snake] = bothNames(name);
  return record[camel] ?? record[snake];
}

/** Which of the two names the text uses; null for neither. */
export function nameIn({ members }: JsonObject, name: string): string | null {
  const names = bothNames(name);
  return members.find((member) => names.includes(member.name))?.name ?? null;
}

export function listed(value: unknown): readonly unknown[] {
  if (value === undefined || value === null) return [];
  return Array.isArray(value) ? value : [value];
}
