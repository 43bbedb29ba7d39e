/**
 * What admission needs to know of an OpenAI chat completions request, or why it cannot be judged.
 * Only members that are judged are checked; all others are the provider's business and pass as they came.
 */
import { problemOfLists } from "./body-limits.ts";
import type { ChatRequest, Described, Malformed } from "./dialect.ts";
import type { JsonObject } from "./json-members.ts";
import { isRecord, type JsonRecord, recordOf } from "./json-values.ts";
import {
  isAbsentOrCount,
  malformed,
  problemOfSpelling,
  readObject,
  spellings,
  unexpected,
} from "./request-body.ts";

/** Every member that caps the output of one completion. Providers differ in which they heed, so the larger counts. */
export const CEILINGS = ["max_tokens", "max_completion_tokens"] as const;

/** Every member that asks for several completions. `best_of` generates them all and answers with `n` of them. */
const COMPLETION_COUNTS = ["n", "best_of"] as const;

/** OpenAI's own limit on `n`. */
const COMPLETIONS_MAX = 128;

/** Members that are read here or that count. A server that ignores case would find them under other spellings. */
const JUDGED = spellings([
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

const JUDGED_STREAM_OPTIONS = spellings(["include_usage"]);

export function describeChat(text: string): Described {
  const body = readObject(text, JUDGED);
  if (!body.ok) return body;
  const { members, scanned } = body;
  const problem = problemOfMembers(members);
  if (problem !== null) return malformed(problem);
  return { ok: true, request: requestOf(text, members, scanned) };
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
