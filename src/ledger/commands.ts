/** What a ledger may be asked. The protocol is told in `types.ts`, with the events that answer. */
import type { Scope } from "../policy/limit-schema.ts";
import type { LedgerPolicy, Price } from "../policy/resolve.ts";
import type { RequestClass } from "../policy/schema.ts";

/** How much a call may take, or took. */
export interface Size {
  readonly inputTokens: number;
  readonly outputTokens: number;
}

/** Running totals. Cached input is part of the input; reasoning is part of the output. */
export interface Usage extends Size {
  readonly cachedInputTokens: number;
  readonly cacheWriteTokens: number;
  readonly reasoningTokens: number;
}

export interface Reserve {
  readonly type: "reserve";
  /** Made by the worker, new for each attempt, time-ordered. */
  readonly requestId: string;
  readonly policyHash: string;
  readonly policyEpoch: number;
  readonly scope: Scope;
  readonly class: RequestClass;
  /** As counted, or as the caller says; of what will be sent. */
  readonly inputTokens: number;
  /** How they were counted; null for the caller's own word, which is taken as it is. */
  readonly counted: Counted | null;
  /** The most output the request can produce, completions multiplied in. */
  readonly maxOutputTokens: number;
  /** False when nobody declared the ceiling: then it is a bound to clip, not a promise to keep. */
  readonly outputDeclared: boolean;
  /** Null for a model without a price. */
  readonly price: Price | null;
  /** The route's per-request ceiling, input and output together; null without one. */
  readonly perRequestMaxTokens: number | null;
  /**
   * Whoever asks sends at once, as the gateway does: the grant is recorded as DISPATCHED in the same event. A
   * caller who makes the call itself says when.
   */
  readonly dispatch: boolean;
  /** How long it may wait for room; null to be refused instead. */
  readonly queueMs: number | null;
  readonly idempotency: Idempotency | null;
}

/** Where an input's count comes from, and what it is made of. */
export interface Counted {
  /**
   * `counted` by our own vocabulary; `bounded` from above, in part at least; `estimated` by a vocabulary that is only
   * assumed; `asked` of whoever will bill it, or asked in vain and `unanswered`.
   */
  readonly basis: "counted" | "bounded" | "estimated" | "asked" | "unanswered";
  /** Names the vocabulary, as packed. */
  readonly vocabulary: string;
  /** Tokens by part of the prompt; those that are not there are none. */
  readonly components: Readonly<Record<string, number>>;
  /** What is billed for a counted token of this model, as long as nothing was learnt about it. */
  readonly presumedDrift: number;
}

/** A caller's word that two requests are one. */
export interface Idempotency {
  /** The caller's key, within the id of the virtual key that it came with. */
  readonly key: string;
  /** Of the body: the same key with another is a conflict. */
  readonly digest: string;
  /** The answer to a repeat: the first lease, or (once that is over) a lease of its own. */
  readonly repeat: "same_lease" | "new_attempt";
}

/** Out of the queue: there is room. The ledger's own. */
export interface Admit {
  readonly type: "admit";
  readonly requestId: string;
}

/** Out of the queue: the caller has gone, or the time is up. */
export interface Leave {
  readonly type: "leave";
  readonly requestId: string;
  readonly cause: "caller_left" | "deadline";
}

interface OnLease {
  readonly requestId: string;
  readonly fence: number;
}

/** From now on the call may have been sent. */
export interface Dispatch extends OnLease {
  readonly type: "dispatch";
}

/** The provider answered. */
export interface Running extends OnLease {
  readonly type: "running";
  readonly providerRequestId: string | null;
}

/** Running totals, never deltas. Renews the lease, even when nothing moved. */
export interface Capture extends OnLease {
  readonly type: "capture";
  readonly usageEventId: string;
  readonly size: Size;
}

/** A larger hold, for an answer that turns out longer: by the rules of admission, or not at all. */
export interface TopUp extends OnLease {
  readonly type: "top_up";
  /** More output. */
  readonly tokens: number;
}

/** `exact` is the provider's own figure; `under_estimate` is what was seen before the end was lost. */
export interface Settle extends OnLease {
  readonly type: "settle";
  readonly usage: Usage;
  readonly basis: "exact" | "under_estimate";
}

export type ReleaseEvidence = "not_sent" | "provider_refused";

export interface Release {
  readonly type: "release";
  readonly requestId: string;
  /** Null where the caller never learnt it: a broken reserve is released by its id alone. */
  readonly fence: number | null;
  readonly evidence: ReleaseEvidence | null;
}

/** The holder is gone: past its deadline, its session ended, or it lost the call's outcome. */
export interface Expire {
  readonly type: "expire";
  readonly requestId: string;
  readonly cause: "deadline" | "session_lost" | "outcome_unknown";
}

/** A frozen lease gets a new owner; the word of the old one counts no more. */
export interface TakeOver {
  readonly type: "take_over";
  readonly requestId: string;
}

/** The outcome of a frozen lease: as the provider tells it, or by the policy when its time is up. */
export interface Resolve {
  readonly type: "resolve";
  readonly requestId: string;
  /** Null: nobody could tell. */
  readonly usage: Usage | null;
}

/** A calendar window has ended. The ledger's own. */
export interface TurnWindow {
  readonly type: "turn_window";
  readonly limit: string;
}

export interface SetPolicy {
  readonly type: "set_policy";
  readonly policy: LedgerPolicy;
}

/** What the holder of a lease, or its heir, may ask. */
export type LeaseCommand =
  | Dispatch
  | Running
  | Capture
  | TopUp
  | Settle
  | Release
  | Expire
  | TakeOver
  | Resolve
  | Leave;
export type Command = Reserve | Admit | LeaseCommand | TurnWindow | SetPolicy;
