/**
 * The members of one JSON object, by where they stand in its text, and edits that leave every other byte alone.
 * A parse and re-serialise would change number precision, escapes and order; the provider gets what the caller wrote.
 * The text is already known to be valid JSON, so the scan only looks for where things end. It is linear and uses
 * no call stack for nesting.
 */

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

/** Scans the object whose opening brace is the first one at or after `from`. */
export function scanObject(text: string, from = 0): JsonObject {
  const open = text.indexOf("{", from);
  const members: JsonMember[] = [];
  const seen = new Set<string>();
  const duplicates = new Set<string>();
  let deepest = 1;
  let index = skipSpace(text, open + 1);
  while (text[index] === '"') {
    const nameEnd = stringEnd(text, index);
    const name: unknown = JSON.parse(text.slice(index, nameEnd));
    if (typeof name !== "string") break;
    const valueStart = skipSpace(text, skipSpace(text, nameEnd) + 1);
    const value = scanValue(text, valueStart);
    deepest = Math.max(deepest, 1 + value.depth);
    members.push({ name, valueStart, valueEnd: value.end });
    if (seen.has(name)) duplicates.add(name);
    seen.add(name);
    index = skipSpace(text, value.end);
    if (text[index] === ",") index = skipSpace(text, index + 1);
  }
  return { open, close: index, members, duplicates: [...duplicates], depth: deepest };
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

/** Where a value ends, and how deep it nests: 0 for a scalar. */
function scanValue(text: string, start: number): { readonly end: number; readonly depth: number } {
  const first = text[start];
  if (first === '"') return { end: stringEnd(text, start), depth: 0 };
  if (first !== "{" && first !== "[") return { end: scalarEnd(text, start), depth: 0 };
  let depth = 0;
  let deepest = 0;
  for (let index = start; index < text.length; ) {
    const unit = text.charCodeAt(index);
    if (unit === QUOTE) {
      index = stringEnd(text, index);
      continue;
    }
    index += 1;
    if (unit === OPEN_BRACE || unit === OPEN_BRACKET) {
      depth += 1;
      deepest = Math.max(deepest, depth);
    } else if (unit === CLOSE_BRACE || unit === CLOSE_BRACKET) {
      depth -= 1;
      if (depth === 0) return { end: index, depth: deepest };
    }
  }
  return { end: text.length, depth: deepest };
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
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

/** Past a number, `true`, `false` or `null`. */
function scalarEnd(text: string, start: number): number {
  let index = start;
  while (index < text.length && !",]} \t\r\n".includes(text.charAt(index))) index += 1;
  return index;
}

function skipSpace(text: string, start: number): number {
  let index = start;
  while (index < text.length && " \t\r\n".includes(text.charAt(index))) index += 1;
  return index;
}
