/**
 * What admission needs to know of an OpenAI chat completions request, or why it cannot be judged.
 * Only members that are judged are checked; all others are the provider's business and pass as they came.
 */
import { MEMBERS_MAX, problemOfLists, problemOfStructure } from "./body-limits.ts";
import type { ChatRequest, Described, Malformed } from "./dialect.ts";
import { type JsonObject, scanObject } from "./json-members.ts";
import { isRecord, type JsonRecord, parseJson, recordOf, shown } from "./json-values.ts";

/** Every member that caps the output of one completion. Providers differ in which they heed, so the larger counts. */
export const CEILINGS = ["max_tokens", "max_completion_tokens"] as const;

/** Every member that asks for several completions. `best_of` generates them all and answers with `n` of them. */
const COMPLETION_COUNTS = ["n", "best_of"] as const;

/** OpenAI's own limit on `n`. */
const COMPLETIONS_MAX = 128;

/** Members that are read here or that count. A server that ignores case would find them under other spellings. */
const JUDGED: ReadonlySet<string> = new Set([
  ...CEILINGS,
  ...COMPLETION_COUNTS,
  "model",
  "messages",
  "stream",
  "stream_options",
  "tools",
  "tool_choice",
  "functions",
  "function_call",
  "response_format",
  "prediction",
]);

const JUDGED_STREAM_OPTIONS: ReadonlySet<string> = new Set(["include_usage"]);

export function describeChat(text: string): Described {
  // Before the parse: it is the parse that a body full of brackets is made to burden.
  const opening = text.trimStart().charAt(0);
  if (opening !== "{") return malformed(`body: expected a JSON object, got ${kindOfText(opening)}`);
  const scanned = scanObject(text, 0, MEMBERS_MAX);
  const excess = problemOfStructure(scanned);
  if (excess !== null) return { ok: false, malformed: excess };
  const members = parseJson(text);
  if (!isRecord(members)) return malformed("body: expected a JSON object, got text that is not valid JSON");
  const problem = problemOfNames(scanned) ?? problemOfMembers(members);
  if (problem !== null) return { ok: false, malformed: problem };
  return { ok: true, request: requestOf(text, members, scanned) };
}

function kindOfText(opening: string): string {
  return opening === "" ? "nothing" : `text that opens with ${shown(opening)}`;
}

/** Reads members that `problemOfMembers` has found no fault with. */
function requestOf(text: string, members: JsonRecord, scanned: JsonObject): ChatRequest {
  const numbers = (names: readonly string[]) =>
    names.map((name) => members[name]).filter((value) => typeof value === "number");
  const declared = numbers(CEILINGS);
  return {
    text,
    members,
    scanned,
    model: String(members["model"]),
    stream: members["stream"] === true,
    declaredOutputTokens: declared.length === 0 ? null : Math.max(...declared),
    completions: Math.max(1, ...numbers(COMPLETION_COUNTS)),
  };
}

/** A name that is read one way here and another way there: what was judged might not be what is served. */
function problemOfNames({ members, duplicates }: JsonObject): Malformed | null {
  const [twice] = duplicates;
  if (twice !== undefined) return fault(twice, `${twice}: expected at most once, got it more than once`);
  return problemOfSpelling(
    members.map(({ name }) => name),
    JUDGED,
    "",
  );
}

function problemOfSpelling(
  names: readonly string[],
  judged: ReadonlySet<string>,
  path: string,
): Malformed | null {
  for (const name of names) {
    // Up and down again: so the long s and the Kelvin sign, too, become the letters that Go takes them for.
    const folded = name.toUpperCase().toLowerCase();
    if (folded === name || !judged.has(folded)) continue;
    return fault(`${path}${name}`, `${path}${name}: expected this member spelt ${path}${folded}`);
  }
  return null;
}

function problemOfMembers(members: JsonRecord): Malformed | null {
  const { model, messages, stream, stream_options: streamOptions } = members;
  if (typeof model !== "string" || model.trim() === "")
    return unexpected("model", "a non-empty string", model);
  if (stream !== undefined && stream !== null && typeof stream !== "boolean") {
    return unexpected("stream", "true, false or null", stream);
  }
  if (streamOptions !== undefined && streamOptions !== null && !isRecord(streamOptions)) {
    return unexpected("stream_options", "an object or null", streamOptions);
  }
  for (const name of CEILINGS) {
    if (!isAbsentOrCount(members[name])) return unexpected(name, "a positive integer", members[name]);
  }
  for (const name of COMPLETION_COUNTS) {
    const count = members[name];
    if (!isAbsentOrCount(count) || (typeof count === "number" && count > COMPLETIONS_MAX)) {
      return unexpected(name, `an integer from 1 to ${COMPLETIONS_MAX}`, count);
    }
  }
  return (
    problemOfSpelling(Object.keys(recordOf(streamOptions)), JUDGED_STREAM_OPTIONS, "stream_options.") ??
    problemOfLists(members) ??
    problemOfMessages(messages)
  );
}

function problemOfMessages(messages: unknown): Malformed | null {
  if (!Array.isArray(messages) || messages.length === 0)
    return unexpected("messages", "a non-empty array", messages);
  for (const [index, message] of messages.entries()) {
    const path = `messages[${index}]`;
    if (!isRecord(message)) return unexpected(path, "an object", message);
    const { role, content } = message;
    if (typeof role !== "string") return unexpected(`${path}.role`, "a string", role);
    if (content === undefined || content === null || typeof content === "string") continue;
    if (!Array.isArray(content))
      return unexpected(`${path}.content`, "a string, an array of parts or null", content);
    for (const [place, part] of content.entries()) {
      if (!isRecord(part)) return unexpected(`${path}.content[${place}]`, "an object", part);
    }
  }
  return null;
}

/** A huge number is fine, the route caps it; one that overflowed to infinity is not. */
function isAbsentOrCount(value: unknown): boolean {
  return value === undefined || value === null || (Number.isInteger(value) && Number(value) >= 1);
}

function unexpected(param: string, expected: string, got: unknown): Malformed {
  return fault(param, `${param}: expected ${expected}, got ${shown(got)}`);
}

function fault(param: string | null, message: string): Malformed {
  return { param, message };
}

function malformed(message: string): Described {
  return { ok: false, malformed: fault(null, message) };
}
