/**
 * The members of one JSON object, by where they stand in its text, and edits that leave every other byte alone.
 * A parse and re-serialise would change number precision, escapes and order; the provider gets what the caller wrote.
 * The scan only looks for where things end, so it can go before the parse and say what a parse would cost. It is
 * linear, makes nothing per value and uses no call stack for nesting. What it says of text that is not valid JSON
 * means nothing, but it ends, and it has counted at least what a parser would make before it gave up.
 */
import { parseJson } from "./json-values.ts";

export interface JsonMember {
  /** Decoded: `"max\u005ftokens"` is `max_tokens`, as it is to whoever parses it next. */
  readonly name: string;
  readonly valueStart: number;
  readonly valueEnd: number;
}

export interface JsonObject {
  /** Where the opening brace stands, and where the closing one does. */
  readonly open: number;
  readonly close: number;
  readonly members: readonly JsonMember[];
  /** How many members there are, kept or not. */
  readonly memberCount: number;
  /** Opening brackets and commas at every level: no fewer than there are values below this one. */
  readonly values: number;
  /** Names that occur more than once, each once. */
  readonly duplicates: readonly string[];
  /** The deepest nesting, this object being 1. */
  readonly depth: number;
}

/** Replaces `text[start .. end]`. */
export interface TextEdit {
  readonly start: number;
  readonly end: number;
  readonly replacement: string;
}

/**
 * Scans the object whose opening brace is the first one at or after `from`. Members past `keep` are counted and not
 * kept: millions of them would cost more than the text.
 */
export function scanObject(text: string, from = 0, keep = Number.POSITIVE_INFINITY): JsonObject {
  const open = Math.max(text.indexOf("{", from), 0);
  const places: MemberPlace[] = [];
  let place: MemberPlace | null = null;
  let memberCount = 0;
  let values = 0;
  let depth = 0;
  let deepest = 0;
  let index = open;
  while (index < text.length) {
    const unit = text.charCodeAt(index);
    if (unit === QUOTE) {
      const end = stringEnd(text, index);
      if (depth === 1 && place === null) {
        place = { nameStart: index, nameEnd: end, valueStart: end, valueEnd: end };
        memberCount += 1;
        if (memberCount <= keep) places.push(place);
      }
      index = end;
      continue;
    }
    if (unit === OPEN_BRACE || unit === OPEN_BRACKET) {
      values += 1;
      depth += 1;
      if (depth > deepest) deepest = depth;
    } else if (unit === COLON) {
      if (depth === 1 && place !== null) place.valueStart = skipSpace(text, index + 1);
    } else if (unit === COMMA) {
      values += 1;
      if (depth === 1) place = ended(text, place, index);
    } else if (unit === CLOSE_BRACE || unit === CLOSE_BRACKET) {
      if (depth === 1) ended(text, place, index);
      depth -= 1;
      if (depth === 0) break;
    }
    index += 1;
  }
  return { open, close: index, memberCount, values, depth: deepest, ...named(text, places) };
}

interface MemberPlace {
  readonly nameStart: number;
  readonly nameEnd: number;
  valueStart: number;
  valueEnd: number;
}

/** The member ends before the space that precedes `index`; no member is open then. */
function ended(text: string, place: MemberPlace | null, index: number): null {
  if (place !== null) place.valueEnd = Math.max(place.valueStart, spaceStart(text, index));
  return null;
}

function named(text: string, places: readonly MemberPlace[]): Pick<JsonObject, "members" | "duplicates"> {
  const members: JsonMember[] = [];
  const seen = new Set<string>();
  const duplicates = new Set<string>();
  for (const { nameStart, nameEnd, valueStart, valueEnd } of places) {
    const name = parseJson(text.slice(nameStart, nameEnd));
    if (typeof name !== "string") break;
    members.push({ name, valueStart, valueEnd });
    if (seen.has(name)) duplicates.add(name);
    seen.add(name);
  }
  return { members, duplicates: [...duplicates] };
}

/** Writes a value over each member of that name, or adds the member before the closing brace. */
export function setMember(object: JsonObject, name: string, json: string): TextEdit[] {
  const present = object.members.filter((member) => member.name === name);
  if (present.length > 0) {
    return present.map((member) => ({ start: member.valueStart, end: member.valueEnd, replacement: json }));
  }
  const last = object.members.at(-1);
  const at = last === undefined ? object.open + 1 : last.valueEnd;
  const comma = last === undefined ? "" : ",";
  return [{ start: at, end: at, replacement: `${comma}${JSON.stringify(name)}:${json}` }];
}

/** Another object of the members that bear one of these names, their values as they were written. */
export function pick(text: string, { members }: JsonObject, names: readonly string[]): string {
  const picked = members
    .filter(({ name }) => names.includes(name))
    .map(({ name, valueStart, valueEnd }) => `${JSON.stringify(name)}:${text.slice(valueStart, valueEnd)}`);
  return `{${picked.join(",")}}`;
}

/** Applies edits that do not overlap; edits at one place keep their order. No edits, the very same string. */
export function splice(text: string, edits: readonly TextEdit[]): string {
  if (edits.length === 0) return text;
  const ordered = edits.toSorted((a, b) => a.start - b.start);
  let result = "";
  let from = 0;
  for (const edit of ordered) {
    result += text.slice(from, edit.start) + edit.replacement;
    from = edit.end;
  }
  return result + text.slice(from);
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COLON = 0x3a;
const COMMA = 0x2c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;

/** Past the closing quote of the string that opens at `start`. Jumps from quote to quote: strings may be megabytes. */
function stringEnd(text: string, start: number): number {
  for (let quote = text.indexOf('"', start + 1); quote >= 0; quote = text.indexOf('"', quote + 1)) {
    let escapes = 0;
    while (text.charCodeAt(quote - 1 - escapes) === BACKSLASH) escapes += 1;
    if (escapes % 2 === 0) return quote + 1;
  }
  return text.length;
}

function skipSpace(text: string, start: number): number {
  let index = start;
  while (index < text.length && " \t\r\n".includes(text.charAt(index))) index += 1;
  return index;
}

/** Where the space that ends before `end` begins. */
function spaceStart(text: string, end: number): number {
  let index = end;
  while (index > 0 && " \t\r\n".includes(text.charAt(index - 1))) index -= 1;
  return index;
}
