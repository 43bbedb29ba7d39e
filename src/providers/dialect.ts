/**
 * What the gateway asks of a wire dialect, and nothing more: describe a request, count what the
 * model will read, make the smallest edit to the caller's bytes, and read usage as the answer goes by.
 * A dialect never re-models a provider's API: bytes pass, `usage` is read.
 */
import type { Counter } from "../tokens/counter.ts";
import type { ImagePricing } from "../tokens/media/image-price.ts";
import type { InputCount } from "../tokens/tally.ts";
import type { JsonObject } from "./json-members.ts";

/** Running totals as the provider reports them. Reasoning is inside output; cached and cache writes are inside input. */
export interface Usage {
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly cachedInputTokens: number;
  readonly cacheWriteTokens: number;
  readonly reasoningTokens: number;
}

/** What a usage figure said, which may be a part: what it leaves out stands as it was. */
export type UsageReport = Partial<Usage>;

/** `count` asks for a prompt's size alone, and spends no tokens; `generate` streams if the body says so. */
export type Operation = "generate" | "stream" | "count";

/** Where a request came: its path below the tenant, as written, and what the path says. */
export interface RequestTarget {
  readonly path: string;
  readonly query: URLSearchParams;
  readonly operation: Operation;
  /** Decoded; null where the body names the model. */
  readonly model: string | null;
}

/** A request as far as admission needs it. `members` are the top-level members by name, already parsed. */
export interface ChatRequest {
  readonly target: RequestTarget;
  /** The caller's body, exactly as received. */
  readonly text: string;
  readonly members: Readonly<Record<string, unknown>>;
  /** Where those members stand in the text, so that an edit need not look for them again. */
  readonly scanned: JsonObject;
  /** As the caller wrote it; the policy makes it canonical. */
  readonly model: string;
  readonly stream: boolean;
  /** The largest output ceiling the caller declared, for one completion; null when none was. */
  readonly declaredOutputTokens: number | null;
  /** How many completions the ceiling applies to (`n`, or `best_of` where that is larger). */
  readonly completions: number;
}

/** Why a body cannot be admitted: which member, what was expected, what came. */
export interface Malformed {
  readonly param: string | null;
  readonly message: string;
}

export type Described =
  | { readonly ok: true; readonly request: ChatRequest }
  | { readonly ok: false; readonly malformed: Malformed };

/** A published bound of the provider's that an input is surely past: no waiting helps, and no other limit. */
export interface Excess {
  readonly param: string;
  /** What there is too much of. */
  readonly what: string;
  readonly requested: number;
  readonly available: number;
}

/** What becomes of an answer beside its being sent. */
export interface Keeping {
  /** The provider can be asked for it again, by its id. */
  readonly stored: boolean;
  /** It is generated to its end whether or not anybody stays to hear it, and the first answer may come before it. */
  readonly background: boolean;
}

export interface BodyEdits {
  /** No ceiling in the body may be above this. */
  readonly maxOutputTokens: number;
  /** The member to write when no ceiling was declared; null leaves the request without one. */
  readonly injectCeilingAs: string | null;
  /** Ask the provider for usage at the end of a stream. */
  readonly includeUsage: boolean;
}

export interface EditedBody {
  /** The caller's text, spliced; the very same string when nothing had to change. */
  readonly text: string;
  /** True when we asked for the usage chunk and the caller did not: the chunk must not reach them. */
  readonly stripUsage: boolean;
}

/** What one event (or a whole unary body) said. */
export interface Reading {
  /** Null when this event carried none: a later null never clears an earlier usage. */
  readonly usage: UsageReport | null;
  /** Output text this event added: content, tool-call arguments, reasoning, refusals. */
  readonly text: string;
  /** What the answer is called, if it says so. */
  readonly answerId: string | null;
  /** Choices that said in this event why they ended. */
  readonly finishedChoices: number;
  /** The provider reported a failure inside a 200. */
  readonly error: boolean;
  /** The event is the usage chunk alone, and nothing of the answer is lost without it. */
  readonly usageOnly: boolean;
  /** The payload could not be read as this dialect. Counted; never an exception. */
  readonly malformed: boolean;
}

/** One error as every dialect can say it; `weir` stands beside the dialect's own error. */
export interface WireError {
  readonly status: number;
  readonly message: string;
  readonly param: string | null;
  /** `tokens` or `requests` where the refusal is about a rate, else null. */
  readonly rate: "tokens" | "requests" | null;
  readonly weir: Readonly<Record<string, unknown>> & { readonly code: string };
}

/** What the policy says of parts of a prompt that no tokenizer can count. */
export interface CountTerms {
  /** How the model prices images. */
  readonly images: ImagePricing;
  /** Allowed for each part that the request only names and the provider fetches. */
  readonly unseenInputTokens: number;
}

/** `excess` where the input is surely past a bound of the provider's. */
export interface PromptCount extends InputCount {
  readonly excess?: Excess;
}

/** The provider's own count of a prompt. */
export interface CountEndpoint {
  /** The same prompt as a request for its size; the path goes below the provider's base URL. */
  request(chat: ChatRequest): { readonly path: string; readonly body: string };
  /** Input tokens as the answer tells them; null when it does not. */
  read(text: string): number | null;
}

export interface Dialect {
  readonly name: string;
  /** The query member that may carry the caller's key; it never goes upstream. Null where only headers do. */
  readonly queryCredential: string | null;
  /** In whose form the caller is told where the limits stand. */
  readonly rateHeaders: "x-ratelimit" | "anthropic-ratelimit";
  /**
   * How many tokens the models of this dialect make of a text for each that our vocabularies count: above 1 where
   * the provider's own vocabulary is not published.
   */
  readonly tokensPerCounted: number;
  /** Below the provider's base URL, with the query that goes along. */
  upstreamPath(request: ChatRequest): string;
  /** The header that carries the provider's secret, and how. */
  credential(secret: string): readonly [name: string, value: string];
  describe(text: string, target: RequestTarget): Described;
  countInput(request: ChatRequest, counter: Counter, terms: CountTerms): PromptCount;
  /** The provider refuses a smaller output ceiling, so none is written. Absent where it takes any. */
  readonly outputCeilingMin?: number;
  edit(request: ChatRequest, edits: BodyEdits): EditedBody;
  /** One SSE event's data; `[DONE]` and the like read as nothing. */
  readEvent(data: string): Reading;
  /** A whole unary answer, or its two ends where `bodyEndBytes` says so. */
  readBody(text: string): Reading;
  /** A stream that is not of server-sent events is one JSON array, each of whose elements is an event. */
  readonly streamsElements?: boolean;
  /**
   * How many bytes at each end of a unary answer say what it cost, for answers that may be too large to read whole and
   * none of which is output. Absent where an answer is read whole.
   */
  readonly bodyEndBytes?: number;
  /** Absent where a provider keeps no answer. */
  keeping?(request: ChatRequest): Keeping;
  /**
   * Below the provider's base URL: where an answer may be read again by its id, for the usage of a call whose end
   * nobody saw. Null for an id that the provider does not keep.
   */
  outcomePath(answerId: string): string | null;
  readonly countEndpoint: CountEndpoint | null;
  errorBody(error: WireError): unknown;
}
