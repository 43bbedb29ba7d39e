/**
 * How much structure a body may have. A body is bounded in bytes, but its cost once parsed is not: millions of empty
 * arrays fit into a few megabytes and take a hundred times that of heap. So it is scanned before it is parsed.
 */
import type { Malformed } from "./dialect.ts";
import type { JsonObject } from "./json-members.ts";
import { type JsonRecord, listOf } from "./json-values.ts";

/** Parses into some ten megabytes, where an isolate has 128 for all its requests; long conversations have thousands. */
export const VALUES_MAX = 100_000;

/** Far beyond any schema, and far below what walking a body by recursion can bear. */
const DEPTH_MAX = 500;

/** The dialects have some fifty members. */
export const MEMBERS_MAX = 1000;

/** By list. OpenAI takes 128 tools; others take more. A message is ten tokens or so, however short. */
const ITEMS_MAX: readonly (readonly [name: string, most: number])[] = [
  ["tools", 1024],
  ["functions", 1024],
  ["messages", 20_000],
  ["contents", 20_000],
  ["input", 20_000],
];

export function problemOfStructure(
  { values, depth, memberCount }: JsonObject,
  valuesMax: number,
): Malformed | null {
  if (depth > DEPTH_MAX) return tooMuch("levels of nesting", DEPTH_MAX, depth);
  if (values > valuesMax) return tooMuch("values", valuesMax, values);
  if (memberCount > MEMBERS_MAX) return tooMuch("top-level members", MEMBERS_MAX, memberCount);
  return null;
}

export function problemOfLists(members: JsonRecord): Malformed | null {
  for (const [name, most] of ITEMS_MAX) {
    const { length } = listOf(members[name]);
    if (length > most) return { param: name, message: `${name}: expected at most ${most}, got ${length}` };
  }
  return null;
}

function tooMuch(what: string, most: number, found: number): Malformed {
  return { param: null, message: `body: expected at most ${most} ${what}, got ${found}` };
}
