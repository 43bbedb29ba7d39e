/** The Chat Completions dialect: what a request says, and what the provider plans to answer. */

import type { Directives } from "./directives.ts";
import { invalidRequest, type Refusal } from "./errors.ts";
import type { Usage } from "./journal.ts";
import { hash, outputLength, seededRandom } from "./lengths.ts";
import type { Settings } from "./settings.ts";
import { ENGLISH, randomWord, UNICODE } from "./words.ts";

export interface ChatRequest {
  /** As the client wrote it, directives included. */
  readonly model: string;
  readonly stream: boolean;
  readonly includeUsage: boolean;
  readonly choices: number;
  readonly ceiling: number | undefined;
  readonly promptTokens: number;
}

export interface Choice {
  readonly index: number;
  readonly words: readonly string[];
  readonly finishReason: "stop" | "length";
}

type Json = Readonly<Record<string, unknown>>;

const MOST_CHOICES = 128;
const TOKENS_PER_MESSAGE = 4;
const TOKENS_PER_REPLY = 3;
const encoder = new TextEncoder();

export function readChatRequest(text: string): ChatRequest | Refusal {
  const body = parsedObject(text);
  if (body === undefined) return invalidRequest("The body of the request is not a JSON object.");
  const { model, messages, n, tools } = body;
  if (typeof model !== "string" || model === "")
    return invalidRequest("You must provide a model parameter.", "model");
  if (!Array.isArray(messages) || messages.length === 0) {
    return invalidRequest("'messages' must be a list with at least one message.", "messages");
  }
  if (n != null && !isCount(n, MOST_CHOICES)) {
    return invalidRequest(`'n' must be a whole number from 1 to ${MOST_CHOICES}.`, "n");
  }
  const ceilings: number[] = [];
  for (const name of ["max_tokens", "max_completion_tokens"]) {
    const value = body[name];
    if (value == null) continue;
    if (!isCount(value, Number.MAX_SAFE_INTEGER)) {
      return invalidRequest(`'${name}' must be a whole number of at least 1.`, name);
    }
    ceilings.push(value);
  }
  return {
    model,
    stream: body.stream === true,
    includeUsage: isObject(body.stream_options) && body.stream_options.include_usage === true,
    choices: n ?? 1,
    ceiling: ceilings.length === 0 ? undefined : Math.max(...ceilings),
    promptTokens: countPrompt(messages, tools),
  };
}

/** Deliberately not a tokenizer: a gateway must not be able to agree with us by construction. */
export function countPrompt(messages: readonly unknown[], tools: unknown): number {
  const textBytes = messages.reduce<number>((sum, message) => sum + messageBytes(message), 0);
  const toolBytes = tools == null ? 0 : byteLength(JSON.stringify(tools));
  return (
    Math.ceil(textBytes / 4) +
    messages.length * TOKENS_PER_MESSAGE +
    TOKENS_PER_REPLY +
    Math.ceil(toolBytes / 4)
  );
}

/** Every choice with its words, fixed by the seed and the body alone. */
export function planChoices(
  request: ChatRequest,
  body: string,
  directives: Directives,
  settings: Settings,
): Choice[] {
  const random = seededRandom(hash(`${settings.seed}\n${body}`));
  const vocabulary = directives.flags.has("unicode") ? UNICODE : ENGLISH;
  return Array.from({ length: request.choices }, (_, index) => {
    const wanted = directives.counts.tokens ?? outputLength(random, settings.outputMedian);
    const length = Math.min(wanted, request.ceiling ?? wanted);
    const words = Array.from({ length }, () => randomWord(random, vocabulary));
    return { index, words, finishReason: length < wanted ? "length" : "stop" };
  });
}

export function plannedTokens(choices: readonly Choice[]): number {
  return choices.reduce((sum, choice) => sum + choice.words.length, 0);
}

/** What the provider sets aside on its own account before it answers. */
export function reservedTokens(request: ChatRequest, planned: number): number {
  const output = request.ceiling === undefined ? planned : request.ceiling * request.choices;
  return request.promptTokens + output;
}

export function usageBody(usage: Usage): Json {
  return {
    prompt_tokens: usage.promptTokens,
    completion_tokens: usage.completionTokens,
    total_tokens: usage.promptTokens + usage.completionTokens,
    prompt_tokens_details: { cached_tokens: 0, audio_tokens: 0 },
    completion_tokens_details: {
      reasoning_tokens: 0,
      audio_tokens: 0,
      accepted_prediction_tokens: 0,
      rejected_prediction_tokens: 0,
    },
  };
}

/** The members that a completion and all of its chunks have in common. */
export function envelope(requestId: string, object: string, model: string, startedAtMs: number): Json {
  return {
    id: requestId.replace("req_sim_", "chatcmpl-sim"),
    object,
    created: Math.floor(startedAtMs / 1000),
    model,
    system_fingerprint: "fp_simulator",
  };
}

export function completionChoices(choices: readonly Choice[]): Json[] {
  return choices.map(({ index, words, finishReason }) => ({
    index,
    message: { role: "assistant", content: words.join(""), refusal: null, annotations: [] },
    logprobs: null,
    finish_reason: finishReason,
  }));
}

function messageBytes(message: unknown): number {
  if (!isObject(message)) return 0;
  const { content } = message;
  if (typeof content === "string") return byteLength(content);
  if (!Array.isArray(content)) return 0;
  return content.reduce<number>((sum, part: unknown) => {
    return sum + (isObject(part) && typeof part.text === "string" ? byteLength(part.text) : 0);
  }, 0);
}

function parsedObject(text: string): Json | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isCount(value: unknown, most: number): value is number {
  return typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= most;
}

function byteLength(text: string): number {
  return encoder.encode(text).length;
}
