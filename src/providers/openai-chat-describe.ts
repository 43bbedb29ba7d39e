/**
 * What admission needs to know of an OpenAI chat completions request, or why it cannot be judged.
 * Only members that are judged are checked; all others are the provider's business and pass as they came.
 */
import type { ChatRequest, Described, Malformed } from "./dialect.ts";
import { scanObject } from "./json-members.ts";
import { isRecord, type JsonRecord, parseJson, shown } from "./json-values.ts";

/** Every member that caps the output of one completion. Providers differ in which they heed, so the larger counts. */
export const CEILINGS = ["max_tokens", "max_completion_tokens"] as const;

/** OpenAI's own limit on `n`. */
const COMPLETIONS_MAX = 128;

/** Far beyond any schema, and far below what walking a body by recursion can bear. */
const DEPTH_MAX = 500;

export function describeChat(text: string): Described {
  const members = parseJson(text);
  if (members === undefined)
    return malformed(null, "body: expected a JSON object, got text that is not valid JSON");
  if (!isRecord(members)) return malformed(null, `body: expected a JSON object, got ${shown(members)}`);
  const problem = problemOfText(text) ?? problemOfMembers(members);
  if (problem !== null) return { ok: false, malformed: problem };
  return { ok: true, request: requestOf(text, members) };
}

/** Reads members that `problemOfMembers` has found no fault with. */
function requestOf(text: string, members: JsonRecord): ChatRequest {
  const { model, stream, n } = members;
  const declared = CEILINGS.map((name) => members[name]).filter((value) => typeof value === "number");
  return {
    text,
    members,
    model: String(model),
    stream: stream === true,
    declaredOutputTokens: declared.length === 0 ? null : Math.max(...declared),
    completions: typeof n === "number" ? n : 1,
  };
}

/** A name given twice is read one way here and another way there, so what was judged might not be what is served. */
function problemOfText(text: string): Malformed | null {
  const { duplicates, depth } = scanObject(text);
  const [twice] = duplicates;
  if (twice !== undefined)
    return { param: twice, message: `${twice}: expected at most once, got it more than once` };
  if (depth > DEPTH_MAX)
    return fault(null, `body: expected at most ${DEPTH_MAX} levels of nesting, got ${depth}`);
  return null;
}

function problemOfMembers(members: JsonRecord): Malformed | null {
  const { model, messages, stream, n, stream_options: streamOptions } = members;
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
  if (!isAbsentOrCount(n) || (typeof n === "number" && n > COMPLETIONS_MAX)) {
    return unexpected("n", `an integer from 1 to ${COMPLETIONS_MAX}`, n);
  }
  return problemOfMessages(messages);
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

function malformed(param: string | null, message: string): Described {
  return { ok: false, malformed: fault(param, message) };
}
