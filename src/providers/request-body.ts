/** What every dialect asks of a body before it looks at a member: that it can be read, and read in one way only. */
import { MEMBERS_MAX, problemOfStructure, VALUES_MAX } from "./body-limits.ts";
import type { Malformed } from "./dialect.ts";
import { type JsonObject, scanObject } from "./json-members.ts";
import { isRecord, type JsonRecord, parseJson, shown } from "./json-values.ts";

export type ReadBody =
  | { readonly ok: true; readonly members: JsonRecord; readonly scanned: JsonObject }
  | { readonly ok: false; readonly malformed: Malformed };

export function readObject(text: string, judged: Spellings, valuesMax = VALUES_MAX): ReadBody {
  // Before the parse: it is the parse that a body full of brackets is made to burden.
  const opening = text.trimStart().charAt(0);
  if (opening !== "{")
    return malformed(fault(null, `body: expected a JSON object, got ${kindOfText(opening)}`));
  const scanned = scanObject(text, 0, MEMBERS_MAX);
  const excess = problemOfStructure(scanned, valuesMax);
  if (excess !== null) return malformed(excess);
  const members = parseJson(text);
  if (!isRecord(members))
    return malformed(fault(null, "body: expected a JSON object, got text that is not valid JSON"));
  const problem = problemOfNames(scanned, judged);
  return problem === null ? { ok: true, members, scanned } : malformed(problem);
}

function kindOfText(opening: string): string {
  return opening === "" ? "nothing" : `text that opens with ${shown(opening)}`;
}

/** Names that are read, by what a server that ignores case would take for them. */
export type Spellings = ReadonlyMap<string, string>;

export function spellings(names: Iterable<string>): Spellings {
  return new Map([...names].map((name) => [folded(name), name]));
}

/** Up and down again: so the long s and the Kelvin sign, too, become the letters that Go takes them for. */
function folded(name: string): string {
  return name.toUpperCase().toLowerCase();
}

/** A name that is read one way here and another way there: what was judged might not be what is served. */
export function problemOfNames(
  { members, duplicates }: JsonObject,
  judged: Spellings,
  path = "",
): Malformed | null {
  const [twice] = duplicates;
  if (twice !== undefined)
    return fault(`${path}${twice}`, `${path}${twice}: expected at most once, got it more than once`);
  const names = members.map(({ name }) => name);
  return problemOfSpelling(names, judged, path);
}

export function problemOfSpelling(
  names: readonly string[],
  judged: Spellings,
  path: string,
): Malformed | null {
  for (const name of names) {
    const expected = judged.get(folded(name));
    if (expected === undefined || expected === name) continue;
    return fault(`${path}${name}`, `${path}${name}: expected this member spelt ${path}${expected}`);
  }
  return null;
}

/** A huge number is fine, the route caps it; one that overflowed to infinity is not. */
export function isAbsentOrCount(value: unknown): boolean {
  return value === undefined || value === null || (Number.isInteger(value) && Number(value) >= 1);
}

export function unexpected(param: string, expected: string, got: unknown): Malformed {
  return fault(param, `${param}: expected ${expected}, got ${shown(got)}`);
}

export function fault(param: string | null, message: string): Malformed {
  return { param, message };
}

export function malformed(problem: Malformed): { readonly ok: false; readonly malformed: Malformed } {
  return { ok: false, malformed: problem };
}
