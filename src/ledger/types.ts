/**
 * The ledger's protocol.
 *
 *   reserve ──► PROPOSED ──admit──► RESERVED ──dispatch──► DISPATCHED ──running──► RUNNING ──capture──► PARTIALLY_SETTLED
 *      │           │                   │                        └──────────┬──────────┴──────────────────────┘
 *      │    leave, deadline     release, expire                            │
 *      ▼           ▼                   ▼                                   ├── settle ──► SETTLED ── settle, exact ──► corrected, once
 *   refused      gone              RELEASED                                ├── release with evidence ──► RELEASED
 *                                                                          └── expire ──► RECONCILING ── settle, resolve ──► SETTLED
 *
 * 1. One command makes one event. `decide` reads the state and answers with the event; `evolve` folds it.
 *    The event is at once the reply, the durable record and what a replay needs: `events.reduce(evolve)`.
 * 2. A hold is deducted from a limit's level once, at reserve. Refill raises the level whatever is held.
 *    Settling gives back hold minus actual (or takes the overrun, below zero if need be).
 * 3. What may have been sent is never given back without evidence. A lease whose holder is gone is
 *    released whole if it never left, and frozen in RECONCILING if it may have.
 * 4. A refusal is an event too. It carries its evidence and changes nothing.
 * 5. A fence says whose word counts. It begins at 1 and rises when a frozen lease is taken over; an older
 *    one is refused, except for a settlement with exact usage: the truth is booked whoever brings it.
 * 6. A queue lives in memory only: who waits in it has been promised nothing.
 *
 * Tokens are whole, and money is whole nano-USD. A bucket's level is counted in 60,000ths (`LEVEL_PER_UNIT`),
 * so that a refill of `refillPerMinute` adds exactly `refillPerMinute` to it in each millisecond.
 */
import type { Scope } from "../policy/limit-schema.ts";
import type { LedgerPolicy, Price } from "../policy/resolve.ts";
import type { RequestClass } from "../policy/schema.ts";
import type { Counted, Expire, Idempotency, ReleaseEvidence, Reserve, Size, Usage } from "./commands.ts";

export type { Size, Usage };

export type LeaseState =
  | "PROPOSED"
  | "RESERVED"
  | "DISPATCHED"
  | "RUNNING"
  | "PARTIALLY_SETTLED"
  | "RECONCILING"
  | "SETTLED"
  | "RELEASED";

/** What a lease holds of one instance of a limit, in the limit's own unit. */
export interface Charge {
  /** The instance's key: the limit's name, and its scope when it has one. */
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

/** One movement of one limit. The level moves by `returned - spent + credited`, less what was forfeited. */
export interface Move {
  readonly limit: string;
  /** The hold that ends here. */
  readonly returned: number;
  /** The actual charge that replaces it. */
  readonly spent: number;
  /** What a correction gives back of an earlier charge. */
  readonly credited: number;
  /** Lost to the clip at capacity, or for having been charged too long ago; in a level's parts. */
  readonly forfeitedLevel: number;
  /** The highest of a window's alert shares that this movement passed. */
  readonly alert: number | null;
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
  /** The gateway makes the call itself; otherwise the caller does, and answers for the lease. */
  readonly proxied: boolean;
  readonly rung: "FULL";
  readonly scope: Scope;
  readonly class: RequestClass;
  readonly policyHash: string;
  /** What the input half of the hold was made from: what was counted, and the drift it was multiplied by. */
  readonly counted: (Counted & { readonly inputTokens: number; readonly drift: number }) | null;
  readonly hold: Size;
  readonly price: Price | null;
  readonly perRequestMaxTokens: number | null;
  readonly charges: readonly Charge[];
  readonly standings: readonly Standing[];
  /** In the queue. */
  readonly waitedMs: number;
  readonly idempotency: Idempotency | null;
  /** Of the lease, from its dispatch. */
  readonly ttlMs: number;
  readonly expiresAtMs: number;
}

/** It waits. Not recorded. */
export interface Queued extends EventBase {
  readonly type: "queued";
  readonly requestId: string;
  readonly command: Reserve;
  /** The drift that its hold was made with. */
  readonly drift: number;
  readonly hold: Size;
  /** What was in its way, and is the forecast's ground. */
  readonly limit: string;
  /** From now; 0 where nothing is known yet. */
  readonly predictedWaitMs: number;
  readonly deadlineAtMs: number;
  readonly standings: readonly Standing[];
}

/** It waits no more, and got nothing. Not recorded. */
export interface Left extends EventBase {
  readonly type: "left";
  readonly requestId: string;
}

export interface Dispatched extends LeaseEvent {
  readonly type: "dispatched";
  readonly expiresAtMs: number;
}

export interface Ran extends LeaseEvent {
  readonly type: "ran";
  readonly providerRequestId: string | null;
  /** Nobody had said before that the call was sent. */
  readonly dispatches: boolean;
  readonly expiresAtMs: number;
}

export interface ToppedUp extends LeaseEvent {
  readonly type: "topped_up";
  /** The whole hold, as it is now. */
  readonly hold: Size;
  readonly charges: readonly Charge[];
  readonly standings: readonly Standing[];
  readonly expiresAtMs: number;
}

export interface TakenOver extends EventBase {
  readonly type: "taken_over";
  readonly requestId: string;
  /** The new one. */
  readonly fence: number;
}

/** The first exact usage of a lease that was settled without one. */
export interface Corrected extends LeaseEvent {
  readonly type: "corrected";
  readonly usage: Usage;
  readonly moves: readonly Move[];
  /** Exact minus what was charged, in tokens. */
  readonly deltaTokens: number;
}

export interface Captured extends LeaseEvent {
  readonly type: "captured";
  readonly usageEventId: string;
  /** The new running totals. */
  readonly captured: Size;
  /** What was produced beyond the hold so far: the debt that settling will bring, unless the hold is topped up. */
  readonly overrunTokens: number;
  /** What left the in-flight gauges by this capture. */
  readonly moves: readonly Move[];
  readonly expiresAtMs: number;
}

export interface Settled extends LeaseEvent {
  readonly type: "settled";
  readonly usage: Usage;
  /** The last two: nobody could tell, and the policy says what is charged then. */
  readonly basis: "exact" | "under_estimate" | "charge_hold" | "charge_captured";
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

/** The part of the calendar that a window counts. */
export interface Span {
  readonly startsAtMs: number;
  readonly endsAtMs: number;
}

export interface PolicySet extends EventBase {
  readonly type: "policy_set";
  readonly policy: LedgerPolicy;
  /** Of each window, by the limit's name. */
  readonly windows: Readonly<Record<string, Span>>;
}

/** What was held in the window that ended stays charged there. */
export interface WindowTurned extends EventBase {
  readonly type: "window_turned";
  readonly limit: string;
  readonly span: Span;
}

/** The command was carried out before, or has nothing to do; the answer is what it was. */
export interface Unchanged extends EventBase {
  readonly type: "unchanged";
  readonly requestId: string | null;
  /** Whose lease answers: a repeat by its idempotency key is answered with the first one's. */
  readonly fence: number | null;
  readonly state: LeaseState | null;
  readonly hold: Size | null;
}

export type RefusalCode =
  | "request_too_large"
  | "tokens_exhausted"
  | "requests_exhausted"
  | "concurrency_exhausted"
  | "in_flight_exhausted"
  | "spend_exhausted"
  | "below_batch_floor"
  | "queue_full"
  | "slo_infeasible"
  | "deadline_exceeded"
  | "idempotency_conflict"
  | "request_in_progress"
  | "need_policy"
  | "unknown_reservation"
  | "invalid_state"
  | "stale_fence"
  | "already_settled";

/** An expected no, with its evidence. It moves nothing, and is recorded only to be read. */
export interface Refused extends EventBase {
  readonly type: "refused";
  readonly code: RefusalCode;
  readonly requestId: string | null;
  /** The instance of a limit that bound, when one did. */
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
  /** In the queue, before it was sent away. */
  readonly waitedMs: number;
}

export type LedgerEvent =
  | Reserved
  | Queued
  | Left
  | Dispatched
  | Ran
  | Captured
  | ToppedUp
  | Settled
  | Corrected
  | Released
  | Expired
  | TakenOver
  | Forestalled
  | PolicySet
  | WindowTurned
  | Unchanged
  | Refused;

/** Events of the record. What is not among them is an answer only, or of the queue. */
export type RecordedEvent = Exclude<LedgerEvent, Unchanged | Queued | Left>;

export function isRecorded(event: LedgerEvent): event is RecordedEvent {
  return event.type !== "unchanged" && event.type !== "queued" && event.type !== "left";
}

/** Events that may ride with the next write: losing one with a crash loses nothing that was promised. */
export function isRider(event: RecordedEvent): boolean {
  // What makes a lease a sent one is a promise: lost, it would be given back whole.
  if (event.type === "ran") return !event.dispatches;
  return event.type === "captured" || event.type === "refused";
}
