/**
 * OpenAI Responses. The parts lie beside, as those of chat completions do: describe, count, read.
 * https://platform.openai.com/docs/api-reference/responses
 */
import type { BodyEdits, ChatRequest, Dialect, EditedBody, Keeping } from "./dialect.ts";
import { setMember, splice } from "./json-members.ts";
import { openaiErrorBody } from "./openai-errors.ts";
import { countResponsesInput } from "./openai-responses-count.ts";
import { CEILING, describeResponses } from "./openai-responses-describe.ts";
import { readResponsesBody, readResponsesEvent } from "./openai-responses-read.ts";

export const openaiResponses: Dialect = {
  name: "openai-responses",
  queryCredential: null,
  rateHeaders: "x-ratelimit",
  tokensPerCounted: 1,
  upstreamPath: () => "/responses",
  credential: (secret) => ["authorization", `Bearer ${secret}`],
  describe: describeResponses,
  countInput: countResponsesInput,
  outputCeilingMin: 16,
  edit: editResponses,
  readEvent: readResponsesEvent,
  readBody: readResponsesBody,
  keeping: keepingOf,
  outcomePath: (id) => (id.startsWith("resp_") ? `/responses/${encodeURIComponent(id)}` : null),
  countEndpoint: null,
  errorBody: openaiErrorBody,
};

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
