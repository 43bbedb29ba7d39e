/**
 * What the gateway asks of a wire dialect, and nothing more: describe a request, count what the
 * model will read, make the smallest edit to the caller's bytes, and read usage as the answer goes by.
 * A dialect never re-models a provider's API: bytes pass, `usage` is read.
 */
import type { Counter } from "../tokens/counter.ts";
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

/** A request as far as admission needs it. `members` are the top-level members by name, already parsed. */
export interface ChatRequest {
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
  readonly usage: Usage | null;
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

export interface Dialect {
  readonly name: string;
  /** Appended to the provider's base URL. */
  readonly upstreamPath: string;
  /** The header that carries the provider's secret, and how. */
  credential(secret: string): readonly [name: string, value: string];
  describe(text: string): Described;
  /**
   * `unseenInputTokens` is allowed for each part of the prompt that the request only names and the provider fetches.
   */
  countInput(
    request: ChatRequest,
    counter: Counter,
    unseenInputTokens?: number,
  ): InputCount & { readonly excess?: Excess };
  /** The provider refuses a smaller output ceiling, so none is written. Absent where it takes any. */
  readonly outputCeilingMin?: number;
  edit(request: ChatRequest, edits: BodyEdits): EditedBody;
  /** One SSE event's data; `[DONE]` and the like read as nothing. */
  readEvent(data: string): Reading;
  /** A whole unary answer, or its two ends where `bodyEndBytes` says so. */
  readBody(text: string): Reading;
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
  errorBody(error: WireError): unknown;
}
