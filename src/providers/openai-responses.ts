/**
 * OpenAI Responses. The parts lie beside, as those of chat completions do: describe, count, read.
 * https://platform.openai.com/docs/api-reference/responses
 */
import type { BodyEdits, ChatRequest, Dialect, EditedBody, Keeping } from "./dialect.ts";
import { pick, setMember, splice } from "./json-members.ts";
import { parseJson, recordOf } from "./json-values.ts";
import { openaiErrorBody } from "./openai-errors.ts";
import { countResponsesInput } from "./openai-responses-count.ts";
import { CEILING, describeResponses } from "./openai-responses-describe.ts";
import { readResponsesBody, readResponsesEvent } from "./openai-responses-read.ts";
import { tokensOf } from "./usage.ts";

export const openaiResponses: Dialect = {
  name: "openai-responses",
  queryCredential: null,
  rateHeaders: "x-ratelimit",
  tokensPerCounted: 1,
  upstreamPath: ({ target }) => (target.operation === "count" ? COUNT_PATH : "/responses"),
  credential: (secret) => ["authorization", `Bearer ${secret}`],
  describe: describeResponses,
  countInput: countResponsesInput,
  outputCeilingMin: 16,
  edit: editResponses,
  readEvent: readResponsesEvent,
  readBody: readResponsesBody,
  keeping: keepingOf,
  outcomePath: (id) => (id.startsWith("resp_") ? `/responses/${encodeURIComponent(id)}` : null),
  countEndpoint: { request: countRequest, read: countOf },
  errorBody: openaiErrorBody,
};

/** https://platform.openai.com/docs/api-reference/responses/input-tokens */
const COUNT_PATH = "/responses/input_tokens";

/** Members that make up the prompt; those of the answer are none of the count's. */
const COUNTED = [
  "model",
  "input",
  "instructions",
  "previous_response_id",
  "conversation",
  "tools",
  "tool_choice",
  "parallel_tool_calls",
  "text",
  "reasoning",
  "truncation",
];

function countRequest({ text, scanned }: ChatRequest): { path: string; body: string } {
  return { path: COUNT_PATH, body: pick(text, scanned, COUNTED) };
}

function countOf(text: string): number | null {
  const tokens = tokensOf(recordOf(parseJson(text))["input_tokens"]);
  return typeof tokens === "number" ? tokens : null;
}

/** One member carries the ceiling, whatever an older server calls it in chat completions. */
function editResponses(request: ChatRequest, { maxOutputTokens, injectCeilingAs }: BodyEdits): EditedBody {
  const { text, scanned, declaredOutputTokens } = request;
  const writes =
    declaredOutputTokens === null ? injectCeilingAs !== null : declaredOutputTokens > maxOutputTokens;
  const edits = writes ? setMember(scanned, CEILING, String(maxOutputTokens)) : [];
  return { text: splice(text, edits), stripUsage: false };
}

/**
 * Kept unless the request forbids it; an answer in the background is kept at least for as long as it takes to ask:
 * https://platform.openai.com/docs/guides/background
 */
function keepingOf({ members: { store, background } }: ChatRequest): Keeping {
  return { stored: store !== false || background === true, background: background === true };
}
