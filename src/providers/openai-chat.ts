/**
 * OpenAI chat completions, the dialect that most other servers speak too.
 * The parts lie beside: what a request says (describe), what it costs (count), what an answer says (read).
 */
import type { BodyEdits, ChatRequest, Dialect, EditedBody } from "./dialect.ts";
import { type JsonObject, scanObject, setMember, splice, type TextEdit } from "./json-members.ts";
import { isRecord } from "./json-values.ts";
import { countChatInput } from "./openai-chat-count.ts";
import { CEILINGS, describeChat } from "./openai-chat-describe.ts";
import { readChatBody, readChatEvent } from "./openai-chat-read.ts";
import { openaiErrorBody } from "./openai-errors.ts";

export const openaiChat: Dialect = {
  name: "openai-chat",
  queryCredential: null,
  rateHeaders: "x-ratelimit",
  tokensPerCounted: 1,
  upstreamPath: () => "/chat/completions",
  credential: (secret) => ["authorization", `Bearer ${secret}`],
  describe: describeChat,
  countInput: countChatInput,
  edit: editChat,
  readEvent: readChatEvent,
  readBody: readChatBody,
  keeping: ({ members }) => ({ stored: members["store"] === true, background: false }),
  // Under the id that each chunk bears.
  outcomePath: (id) => (id.startsWith("chatcmpl-") ? `/chat/completions/${encodeURIComponent(id)}` : null),
  countEndpoint: null,
  errorBody: openaiErrorBody,
};

function editChat(request: ChatRequest, edits: BodyEdits): EditedBody {
  const object = request.scanned;
  const stripUsage = edits.includeUsage && request.stream && !asksForUsage(request);
  const changes = [
    ...ceilingEdits(request, edits, object),
    ...(stripUsage ? usageEdits(request, object) : []),
  ];
  return { text: splice(request.text, changes), stripUsage };
}

function ceilingEdits(request: ChatRequest, edits: BodyEdits, object: JsonObject): TextEdit[] {
  const { maxOutputTokens, injectCeilingAs } = edits;
  if (request.declaredOutputTokens === null) {
    return injectCeilingAs === null ? [] : setMember(object, injectCeilingAs, String(maxOutputTokens));
  }
  const ceiling = String(Math.min(request.declaredOutputTokens, maxOutputTokens));
  // A server that heeds `max_tokens` alone would run without end on the newer name. Not the other way round: whoever
  // heeds the newer name heeds the older one too, and OpenAI rejects a request with both.
  const unheeded = injectCeilingAs === "max_tokens" && (request.members["max_tokens"] ?? null) === null;
  return [
    ...CEILINGS.filter((name) => Number(request.members[name] ?? 0) > maxOutputTokens).flatMap((name) =>
      setMember(object, name, ceiling),
    ),
    ...(unheeded ? setMember(object, "max_tokens", ceiling) : []),
  ];
}

function asksForUsage({ members: { stream_options: options } }: ChatRequest): boolean {
  return isRecord(options) && options["include_usage"] === true;
}

/** Turned on even where the caller said false: without it a stream cannot be metered, and the chunk is stripped again. */
function usageEdits(request: ChatRequest, object: JsonObject): TextEdit[] {
  const options = object.members.find((member) => member.name === "stream_options");
  if (options === undefined || !isRecord(request.members["stream_options"])) {
    return setMember(object, "stream_options", '{"include_usage":true}');
  }
  return setMember(scanObject(request.text, options.valueStart), "include_usage", "true");
}
