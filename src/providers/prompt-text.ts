/**
 * Counting text that stands somewhere in a JSON prompt. Every string counts, known or not, except the few that never
 * reach the model: a prompt must not become free by the place where it is hidden.
 */
import type { Component, Tally } from "../tokens/tally.ts";
import { isRecord, recordOf } from "./json-values.ts";

/** Members that say how to read a message, a part or a call, and are not read by the model themselves. */
export const LABELS: ReadonlySet<string> = new Set(["type", "id", "index", "cache_control"]);

/** No real label is longer. What is longer may be a prompt that somebody hopes is not counted. */
export const LABEL_UNITS_MAX = 64;

/** Every string below a member the format does not name here: tool calls, refusals, reasoning, and what is new. */
export function countStrings(component: Component, value: unknown, tally: Tally): void {
  if (typeof value === "string") tally.text(component, value);
  else if (Array.isArray(value)) for (const item of value) countStrings(component, item, tally);
  else {
    for (const [member, inner] of Object.entries(recordOf(value))) {
      countName(component, member, tally);
      countStrings(component, inner, tally);
    }
  }
}

/** One member of an object in which `labels` are known to stand. */
export function countMember(
  component: Component,
  [member, value]: readonly [string, unknown],
  labels: ReadonlySet<string>,
  tally: Tally,
): void {
  if (labels.has(member) && lengthOf(value) <= LABEL_UNITS_MAX) return;
  countName(component, member, tally);
  countStrings(component, value, tally);
}

/** A value at a level where labels are known to stand. */
export function countLabelled(component: Component, value: unknown, tally: Tally): void {
  if (!isRecord(value)) countStrings(component, value, tally);
  else for (const entry of Object.entries(value)) countMember(component, entry, LABELS, tally);
}

function lengthOf(value: unknown): number {
  return typeof value === "string" ? value.length : JSON.stringify(value).length;
}

/** Names are part of the format and do not count, unless one is longer than any format's. */
function countName(component: Component, member: string, tally: Tally): void {
  if (member.length > LABEL_UNITS_MAX) tally.text(component, member);
}
