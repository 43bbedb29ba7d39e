/**
 * What admission needs to know of an Anthropic Messages request, or why it cannot be judged.
 * Only members that are judged are checked; all others are the provider's business and pass as they came.
 */
import { problemOfLists } from "./body-limits.ts";
import type { Described, Malformed, RequestTarget } from "./dialect.ts";
import { isRecord, type JsonRecord } from "./json-values.ts";
import { type AllowedQuery, problemOfQuery } from "./query.ts";
import { isAbsentOrCount, malformed, readObject, spellings, unexpected } from "./request-body.ts";

/** The SDK's beta calls say so in the query as well. */
export const QUERY: AllowedQuery = { beta: ["true"] };

/** Members that are read here or that count. */
const JUDGED = spellings([
  "model",
  "messages",
  "system",
  "stream",
  "max_tokens",
  "tools",
  "tool_choice",
  "mcp_servers",
  "output_config",
  "output_format",
]);

export function describeMessages(text: string, target: RequestTarget): Described {
  const queryProblem = problemOfQuery(target.query, QUERY, null);
  if (queryProblem !== null) return malformed(queryProblem);
  const body = readObject(text, JUDGED);
  if (!body.ok) return body;
  const { members, scanned } = body;
  const problem = problemOfMembers(members);
  if (problem !== null) return malformed(problem);
  const { model, stream, max_tokens: maxTokens } = members;
  return {
    ok: true,
    request: {
      target,
      text,
      members,
      scanned,
      model: String(model),
      stream: stream === true,
      // The provider requires one. Without it the route's is written in, or the provider says what is missing.
      declaredOutputTokens: typeof maxTokens === "number" ? maxTokens : null,
      completions: 1,
    },
  };
}

function problemOfMembers(members: JsonRecord): Malformed | null {
  const { model, messages, system, stream, max_tokens: maxTokens } = members;
  if (typeof model !== "string" || model.trim() === "")
    return unexpected("model", "a non-empty string", model);
  if (stream !== undefined && stream !== null && typeof stream !== "boolean")
    return unexpected("stream", "true, false or null", stream);
  if (!isAbsentOrCount(maxTokens)) return unexpected("max_tokens", "a positive integer", maxTokens);
  return problemOfLists(members) ?? problemOfContent("system", system) ?? problemOfMessages(messages);
}

function problemOfMessages(messages: unknown): Malformed | null {
  if (!Array.isArray(messages) || messages.length === 0)
    return unexpected("messages", "a non-empty array", messages);
  for (const [index, message] of messages.entries()) {
    const path = `messages[${index}]`;
    if (!isRecord(message)) return unexpected(path, "an object", message);
    const { role, content } = message;
    if (typeof role !== "string") return unexpected(`${path}.role`, "a string", role);
    const problem = problemOfContent(`${path}.content`, content);
    if (problem !== null) return problem;
  }
  return null;
}

function problemOfContent(path: string, content: unknown): Malformed | null {
  if (content === undefined || content === null || typeof content === "string") return null;
  if (!Array.isArray(content)) return unexpected(path, "a string or an array of blocks", content);
  for (const [place, block] of content.entries()) {
    if (!isRecord(block)) return unexpected(`${path}[${place}]`, "an object", block);
  }
  return null;
}
