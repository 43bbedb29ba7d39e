/**
 * OpenAI embeddings: all input and no output, so nothing but the input is held and no ceiling is ever written.
 * https://platform.openai.com/docs/api-reference/embeddings/create
 */
import type { ChatRequest, Described, Dialect, Malformed, Reading, RequestTarget } from "./dialect.ts";
import { scanObject } from "./json-members.ts";
import { isRecord, parseJson, recordOf } from "./json-values.ts";
import { countEmbeddingsInput } from "./openai-embeddings-count.ts";
import { openaiErrorBody } from "./openai-errors.ts";
import { MALFORMED, NOTHING } from "./reading.ts";
import { malformed, readObject, spellings, unexpected } from "./request-body.ts";
import { tokensOf } from "./usage.ts";

export const openaiEmbeddings: Dialect = {
  name: "openai-embeddings",
  queryCredential: null,
  rateHeaders: "x-ratelimit",
  tokensPerCounted: 1,
  upstreamPath: () => "/embeddings",
  credential: (secret) => ["authorization", `Bearer ${secret}`],
  describe: describeEmbeddings,
  countInput: countEmbeddingsInput,
  edit: ({ text }) => ({ text, stripUsage: false }),
  readEvent: readEmbeddings,
  readBody: readEmbeddings,
  // Vectors are megabytes, and the figure stands behind them or, at some servers, before them.
  bodyEndBytes: 4096,
  outcomePath: () => null,
  countEndpoint: null,
  errorBody: openaiErrorBody,
};

const JUDGED = spellings(["model", "input"]);

/**
 * A full request of token ids has 300,000 of them, and one that is somewhat too large is still to be told so by its
 * tokens. Numbers parse into a few bytes each.
 */
const VALUES_MAX = 400_000;

function describeEmbeddings(text: string, target: RequestTarget): Described {
  const body = readObject(text, JUDGED, VALUES_MAX);
  if (!body.ok) return body;
  const { members, scanned } = body;
  const { model, input } = members;
  if (typeof model !== "string" || model.trim() === "")
    return malformed(unexpected("model", "a non-empty string", model));
  const problem = problemOfInput(input);
  if (problem !== null) return malformed(problem);
  const request: ChatRequest = {
    target,
    text,
    members,
    scanned,
    model,
    stream: false,
    declaredOutputTokens: 0,
    completions: 1,
  };
  return { ok: true, request };
}

/** One text or several, as words or as token ids; a list is of one kind throughout. */
function problemOfInput(input: unknown): Malformed | null {
  if (typeof input === "string") return null;
  if (!Array.isArray(input) || input.length === 0)
    return unexpected("input", "a string, or a non-empty array of strings or of token ids", input);
  const [first] = input as readonly unknown[];
  if (typeof first === "string") return problemOfEach(input, "input", isString, "a string, as the others");
  if (typeof first === "number") return problemOfEach(input, "input", isTokenId, "a token id");
  for (const [index, item] of input.entries()) {
    const path = `input[${index}]`;
    if (!Array.isArray(item) || item.length === 0)
      return unexpected(path, index === 0 ? "a string, a token id or an array of them" : "token ids", item);
    const problem = problemOfEach(item, path, isTokenId, "a token id");
    if (problem !== null) return problem;
  }
  return null;
}

function problemOfEach(
  items: readonly unknown[],
  path: string,
  fits: (item: unknown) => boolean,
  expected: string,
): Malformed | null {
  const index = items.findIndex((item) => !fits(item));
  return index < 0 ? null : unexpected(`${path}[${index}]`, expected, items[index]);
}

const isString = (item: unknown): boolean => typeof item === "string";

const isTokenId = (item: unknown): boolean => Number.isSafeInteger(item) && Number(item) >= 0;

/**
 * Of a whole answer or of its two ends. Its strings are names and, in base64, numbers: none of them can contain the
 * quoted word that is looked for.
 */
function readEmbeddings(text: string): Reading {
  if (text.trim() === "" || text.trim() === "[DONE]") return NOTHING;
  const at = text.lastIndexOf('"usage"');
  if (at < 0) return { ...(isRecord(parseJson(text)) ? NOTHING : MALFORMED), error: saysError(text) };
  const { open, close } = scanObject(text, at);
  const usage = recordOf(parseJson(text.slice(open, close + 1)));
  // Some servers name the total alone; nothing is generated, so either is the whole.
  const figures = [tokensOf(usage["prompt_tokens"]), tokensOf(usage["total_tokens"])];
  const known = figures.filter((figure) => typeof figure === "number");
  if (figures.includes("invalid") || known.length === 0) return { ...NOTHING, malformed: true };
  const inputTokens = Math.max(...known);
  return {
    ...NOTHING,
    usage: { inputTokens, outputTokens: 0, cachedInputTokens: 0, cacheWriteTokens: 0, reasoningTokens: 0 },
    finishedChoices: 1,
  };
}

function saysError(text: string): boolean {
  const { error } = recordOf(parseJson(text));
  return isRecord(error) || (typeof error === "string" && error !== "");
}
