/**
 * The ledger's protocol.
 *
 *   reserve ──► RESERVED ──dispatch──► DISPATCHED ──running──► RUNNING ──capture──► PARTIALLY_SETTLED
 *                  │                        └──────────┬──────────┴──────────────────────┘
 *          release, expire                             │
 *                  ▼                                   ├── settle ──► SETTLED
 *              RELEASED                                ├── release with evidence ──► RELEASED
 *                                                      └── expire ──► RECONCILING ── settle, resolve ──► SETTLED
 *
 * 1. One command makes one event. `decide` reads the state and answers with the event; `evolve` folds it.
 *    The event is at once the reply, the durable record and what a replay needs: `events.reduce(evolve)`.
 * 2. A hold is deducted from a limit's level once, at reserve. Refill raises the level whatever is held.
 *    Settling gives back hold minus actual (or takes the overrun, below zero if need be).
 * 3. What may have been sent is never given back without evidence. A lease whose holder is gone is
 *    released whole if it never left, and frozen in RECONCILING if it may have.
 * 4. A refusal is an event too. It carries its evidence and changes nothing.
 *
 * Tokens are whole. A level is counted in 60,000ths (`LEVEL_PER_UNIT`), so that a refill of
 * `refillPerMinute` tokens adds exactly `refillPerMinute` to it in each millisecond.
 */
import type { LedgerPolicy } from "../policy/resolve.ts";
import type { RequestClass } from "../policy/schema.ts";

export type LeaseState =
  | "RESERVED"
  | "DISPATCHED"
  | "RUNNING"
  | "PARTIALLY_SETTLED"
  | "RECONCILING"
  | "SETTLED"
  | "RELEASED";

/** What a call costs: the only two sizes a limit's unit is worked out from. */
export interface Size {
  readonly inputTokens: number;
  readonly outputTokens: number;
}

/** Running totals, with the details that pricing and telemetry want. */
export interface Usage extends Size {
  readonly cachedInputTokens: number;
  readonly cacheWriteTokens: number;
  readonly reasoningTokens: number;
}

// ── Commands ────────────────────────────────────────────────────────────────────────────────────

export interface Reserve {
  readonly type: "reserve";
  /** Made by the worker, new for each attempt, time-ordered. */
  readonly requestId: string;
  readonly policyHash: string;
  readonly policyEpoch: number;
  readonly route: string;
  readonly model: string;
  readonly class: RequestClass;
  readonly keyId: string;
  /** As counted; already what will be sent. */
  readonly inputTokens: number;
  /** The most output the request can produce, completions multiplied in. */
  readonly maxOutputTokens: number;
  /** False when nobody declared the ceiling: then it is a bound to clip, not a promise to keep. */
  readonly outputDeclared: boolean;
  /** The route's per-request ceiling, input and output together; null without one. */
  readonly perRequestMaxTokens: number | null;
  /** The caller sends at once: the grant is recorded as DISPATCHED in the same event. */
  readonly dispatch: boolean;
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

/** A lease that nobody could reconcile in time is charged what it held. */
export interface Resolve {
  readonly type: "resolve";
  readonly requestId: string;
}

export interface SetPolicy {
  readonly type: "set_policy";
  readonly policy: LedgerPolicy;
}

export type LeaseCommand = Dispatch | Running | Capture | Settle | Release | Expire;
export type Command = Reserve | LeaseCommand | Resolve | SetPolicy;

// ── Events ──────────────────────────────────────────────────────────────────────────────────────

/** What a lease holds of one limit, in the limit's own unit. */
export interface Charge {
  readonly limit: string;
  /** Which life of the limit was charged: one that was dropped and comes back by the same name is another. */
  readonly generation: number;
  readonly amount: number;
}

/** A limit as a decision left it, for the answer's headers: in its unit, and maybe fractional. */
export interface Standing {
  readonly limit: string;
  readonly level: number;
}

/** One movement of one limit. The level moves by `(returned - spent)` units less what was forfeited. */
export interface Move {
  readonly limit: string;
  /** The hold that ends here. */
  readonly returned: number;
  /** The actual charge that replaces it. */
  readonly spent: number;
  /** Level lost to the clip at capacity. */
  readonly forfeitedLevel: number;
}

interface EventBase {
  readonly atMs: number;
}

interface LeaseEvent extends EventBase {
  readonly requestId: string;
  readonly fence: number;
}

export interface Reserved extends LeaseEvent {
  readonly type: "reserved";
  readonly state: "RESERVED" | "DISPATCHED";
  readonly rung: "FULL";
  readonly route: string;
  readonly model: string;
  readonly class: RequestClass;
  readonly keyId: string;
  readonly policyHash: string;
  readonly hold: Size;
  readonly charges: readonly Charge[];
  readonly standings: readonly Standing[];
  readonly ttlMs: number;
  readonly expiresAtMs: number;
}

export interface Dispatched extends LeaseEvent {
  readonly type: "dispatched";
  readonly expiresAtMs: number;
}

export interface Ran extends LeaseEvent {
  readonly type: "ran";
  readonly providerRequestId: string | null;
  readonly expiresAtMs: number;
}

export interface Captured extends LeaseEvent {
  readonly type: "captured";
  readonly usageEventId: string;
  /** The new running totals. */
  readonly captured: Size;
  /** What left the in-flight gauges by this capture. */
  readonly moves: readonly Move[];
  readonly expiresAtMs: number;
}

export interface Settled extends LeaseEvent {
  readonly type: "settled";
  readonly usage: Usage;
  readonly basis: "exact" | "under_estimate" | "charge_hold";
  readonly moves: readonly Move[];
  readonly refundedTokens: number;
  readonly overrunTokens: number;
  /** From reserve to here: the stay that gauges are about. */
  readonly stayMs: number;
}

export interface Released extends LeaseEvent {
  readonly type: "released";
  readonly evidence: ReleaseEvidence | "never_sent";
  readonly moves: readonly Move[];
}

export interface Expired extends LeaseEvent {
  readonly type: "expired";
  readonly cause: Expire["cause"];
  readonly to: "RELEASED" | "RECONCILING";
  readonly moves: readonly Move[];
}

/** A release arrived before its reserve: the id is closed, and the late reserve will be refused. */
export interface Forestalled extends EventBase {
  readonly type: "forestalled";
  readonly requestId: string;
}

export interface PolicySet extends EventBase {
  readonly type: "policy_set";
  readonly policy: LedgerPolicy;
}

/** The command was carried out before, or has nothing to do; the answer is what it was. */
export interface Unchanged extends EventBase {
  readonly type: "unchanged";
  readonly requestId: string | null;
}

export type RefusalCode =
  | "request_too_large"
  | "tokens_exhausted"
  | "requests_exhausted"
  | "concurrency_exhausted"
  | "in_flight_exhausted"
  | "below_batch_floor"
  | "need_policy"
  | "unknown_reservation"
  | "invalid_state"
  | "stale_fence"
  | "already_settled";

/** An expected no, with its evidence. It changes nothing and is not remembered. */
export interface Refused extends EventBase {
  readonly type: "refused";
  readonly code: RefusalCode;
  readonly requestId: string | null;
  /** The limit that bound, when one did. */
  readonly limit: string | null;
  /** In the limit's unit. */
  readonly requested: number | null;
  readonly available: number | null;
  /** When this very amount fits, should nothing else be admitted; null when it never will, or nobody knows. */
  readonly retryAfterMs: number | null;
  /** Where the lease stands, for refusals that are about its state. */
  readonly state: LeaseState | null;
  readonly hold: Size | null;
  readonly standings: readonly Standing[];
}

export type LedgerEvent =
  | Reserved
  | Dispatched
  | Ran
  | Captured
  | Settled
  | Released
  | Expired
  | Forestalled
  | PolicySet
  | Unchanged
  | Refused;

/** Events that move the state; the others are answers only and are never recorded. */
export type RecordedEvent = Exclude<LedgerEvent, Unchanged | Refused>;

export function isRecorded(event: LedgerEvent): event is RecordedEvent {
  return event.type !== "unchanged" && event.type !== "refused";
}
