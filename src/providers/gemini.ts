/**
 * Google's Gemini API. Source of the wire format: https://ai.google.dev/api/generate-content
 * The parts lie beside: what a request says (describe), what it costs (count), what an answer says (read).
 */
import type { BodyEdits, ChatRequest, Dialect, EditedBody, WireError } from "./dialect.ts";
import { countGeminiInput } from "./gemini-count.ts";
import { describeGemini, QUERY, QUERY_CREDENTIAL } from "./gemini-describe.ts";
import { nameIn } from "./gemini-names.ts";
import { readGeminiBody, readGeminiEvent } from "./gemini-read.ts";
import { scanObject, setMember, splice, type TextEdit } from "./json-members.ts";
import { isRecord, parseJson } from "./json-values.ts";
import { passedQuery } from "./query.ts";
import { tokensOf } from "./usage.ts";

export const gemini: Dialect = {
  name: "gemini",
  queryCredential: QUERY_CREDENTIAL,
  rateHeaders: "x-ratelimit",
  // Its vocabulary is not OpenAI's; by Google's own rule of thumb (four characters a token, 60 to 80 English words a
  // hundred) it makes about as many, and up to a tenth more: https://ai.google.dev/gemini-api/docs/tokens
  tokensPerCounted: 1.1,
  upstreamPath: ({ target }) => `${target.path}${passedQuery(target.query, QUERY)}`,
  credential: (secret) => ["x-goog-api-key", secret],
  describe: describeGemini,
  countInput: countGeminiInput,
  edit: editGemini,
  readEvent: readGeminiEvent,
  readBody: readGeminiBody,
  streamsElements: true,
  // Answers are not kept.
  outcomePath: () => null,
  countEndpoint: { request: countRequest, read: countOf },
  errorBody: geminiErrorBody,
};

function editGemini(request: ChatRequest, { maxOutputTokens, injectCeilingAs }: BodyEdits): EditedBody {
  const declared = request.declaredOutputTokens;
  const changes = declared === null ? injectCeilingAs !== null : declared > maxOutputTokens;
  const edits = changes ? ceilingEdits(request, String(maxOutputTokens)) : [];
  return { text: splice(request.text, edits), stripUsage: false };
}

/** Under the names that the request uses, for a second one would be a fault. */
function ceilingEdits({ text, members, scanned }: ChatRequest, ceiling: string): TextEdit[] {
  const config = nameIn(scanned, "generationConfig");
  const place = scanned.members.find(({ name }) => name === config);
  if (config === null || place === undefined || !isRecord(members[config]))
    return setMember(scanned, config ?? "generationConfig", `{"maxOutputTokens":${ceiling}}`);
  const within = scanObject(text, place.valueStart);
  return setMember(within, nameIn(within, "maxOutputTokens") ?? "maxOutputTokens", ceiling);
}

/** The whole request, so that tools and the system's instruction count too. */
function countRequest({ target, text, scanned, model }: ChatRequest): { path: string; body: string } {
  const named = splice(text, setMember(scanned, "model", JSON.stringify(`models/${model}`)));
  const path = target.path.replace(/(:|%3a)[a-z]+$/i, ":countTokens");
  return { path, body: `{"generateContentRequest":${named}}` };
}

function countOf(text: string): number | null {
  const answer = parseJson(text);
  const tokens = isRecord(answer) ? tokensOf(answer["totalTokens"]) : "absent";
  return typeof tokens === "number" ? tokens : null;
}

/** Source of the codes: https://ai.google.dev/gemini-api/docs/troubleshooting and google.rpc.Code. */
const STATUSES: Readonly<Record<number, string>> = {
  401: "UNAUTHENTICATED",
  403: "PERMISSION_DENIED",
  404: "NOT_FOUND",
  409: "ABORTED",
  429: "RESOURCE_EXHAUSTED",
  502: "UNAVAILABLE",
  503: "UNAVAILABLE",
  504: "DEADLINE_EXCEEDED",
};

function geminiErrorBody({ status: code, message, weir }: WireError): unknown {
  const status = STATUSES[code] ?? (code >= 500 ? "INTERNAL" : "INVALID_ARGUMENT");
  const { retryAfterMs } = weir;
  const details =
    typeof retryAfterMs === "number"
      ? [{ "@type": "type.googleapis.com/google.rpc.RetryInfo", retryDelay: `${retryAfterMs / 1_000}s` }]
      : [];
  return { error: { code, message, status, ...(details.length === 0 ? {} : { details }) }, weir };
}
