/** A ledger in memory. Only `evolve` changes it. */
import type { Drift } from "../estimator/drift.ts";
import type { Scope } from "../policy/limit-schema.ts";
import type { LedgerPolicy, Price } from "../policy/resolve.ts";
import type { RequestClass } from "../policy/schema.ts";
import type { Idempotency, Reserve } from "./commands.ts";
import { Fifo, type Node } from "./fifo.ts";
import type { Definition, LimitState } from "./limits.ts";
import type { LeaseState, Settled, Size, Usage } from "./types.ts";

export interface Lease extends Node<Lease> {
  readonly requestId: string;
  /** 0 for an id whose release came before its reserve: no lease ever bore it. */
  fence: number;
  readonly proxied: boolean;
  readonly scope: Scope;
  readonly class: RequestClass;
  readonly price: Price | null;
  readonly perRequestMaxTokens: number | null;
  readonly idempotency: Idempotency | null;
  /** What was counted of the input, where its bill teaches something about counting; else null. */
  readonly countedTokens: number | null;
  readonly reservedAtMs: number;
  /** How long it may stay RESERVED, and how long it lives between two signs of life from then on. */
  readonly acceptMs: number;
  readonly ttlMs: number;
  /** How long its outcome is asked after, once it is frozen; 0 before. */
  reconcileMs: number;
  /** What is held, top-ups included; `captured` may pass it, and what passes it is the overrun. */
  hold: Size;
  state: LeaseState;
  captured: Size;
  /** What is still held of each limit, and what was spent of it already, in its unit. */
  readonly charges: readonly LeaseCharge[];
  /** The end of the holder's time; in RECONCILING, of the time to find out; once closed, of being remembered. */
  expiresAtMs: number;
  lastUsageEventId: string | null;
  providerRequestId: string | null;
  /** Set once it is SETTLED. */
  settlement: Settlement | null;
}

export interface LeaseCharge {
  readonly limit: string;
  readonly generation: number;
  amount: number;
  spent: number;
}

export interface Settlement {
  readonly usage: Usage;
  readonly basis: Settled["basis"];
  /** An exact figure that came later has moved the difference; nothing moves it again. */
  readonly corrected: boolean;
}

/** Who stands in the queue. Nothing is held for it, and nothing of it is recorded. */
export interface Waiter extends Node<Waiter> {
  readonly requestId: string;
  readonly command: Reserve;
  readonly drift: number;
  readonly hold: Size;
  readonly arrivedAtMs: number;
  readonly deadlineAtMs: number;
}

export interface Queue {
  readonly byId: Map<string, Waiter>;
  /** Beside the leases' keys, which a waiter must not take: it may go and leave nothing. */
  readonly byIdempotencyKey: Map<string, string>;
  readonly byClass: Readonly<Record<RequestClass, Fifo<Waiter>>>;
  tokens: number;
  /** No deadline lies before this. */
  nextDeadlineAtMs: number;
}

/** Running means over the settlements, for forecasts. 0 until there was one. */
export interface Means {
  stayMs: number;
  outputTokens: number;
  /** What of a hold comes back. */
  refundShare: number;
}

export interface LedgerState {
  /** The latest time seen; it only rises, whatever the clock does. */
  nowMs: number;
  policy: LedgerPolicy | null;
  /** How many policies and windows there have been. */
  generation: number;
  definitions: Map<string, Definition>;
  /** By key; scoped ones in the order of their last use. */
  readonly limits: Map<string, LimitState>;
  readonly leases: Map<string, Lease>;
  /** The newest lease of each idempotency key that is remembered. */
  readonly byIdempotencyKey: Map<string, string>;
  /** Leases whose holder is alive, by time-to-live; and frozen ones, by their age limit. Each line is in order. */
  readonly open: Map<number, Fifo<Lease>>;
  readonly reconciling: Map<number, Fifo<Lease>>;
  /** SETTLED and RELEASED, remembered for late and repeated calls. */
  readonly closed: Fifo<Lease>;
  readonly queue: Queue;
  means: Means;
  /** By model; the one that was longest not taught comes first. */
  readonly drifts: Map<string, Drift>;
  /** Tokens of open holds that have not been captured, and of the frozen ones. */
  inFlightTokens: number;
  reconcilingTokens: number;
}

export function emptyState(): LedgerState {
  return {
    nowMs: 0,
    policy: null,
    generation: 0,
    definitions: new Map(),
    limits: new Map(),
    leases: new Map(),
    byIdempotencyKey: new Map(),
    open: new Map(),
    reconciling: new Map(),
    closed: new Fifo(),
    queue: {
      byId: new Map(),
      byIdempotencyKey: new Map(),
      byClass: { interactive: new Fifo(), batch: new Fifo() },
      tokens: 0,
      nextDeadlineAtMs: Infinity,
    },
    means: { stayMs: 0, outputTokens: 0, refundShare: 0 },
    drifts: new Map(),
    inFlightTokens: 0,
    reconcilingTokens: 0,
  };
}

export function isClosed(state: LeaseState): boolean {
  return state === "SETTLED" || state === "RELEASED";
}

/** Its holder is alive, as far as anyone knows. */
export function isOpen(state: LeaseState): boolean {
  return !isClosed(state) && state !== "RECONCILING";
}

export function openCount(state: LedgerState): number {
  return lengthOf(state.open);
}

export function lengthOf(lines: ReadonlyMap<number, Fifo<Lease>>): number {
  let count = 0;
  for (const line of lines.values()) count += line.length;
  return count;
}

export function tokensOf(size: Size): number {
  return size.inputTokens + size.outputTokens;
}

/** I1: captured + remaining = reserved + top-ups; what was captured beyond them is overrun, beside it. */
export function remainingTokens(lease: Lease): number {
  return Math.max(0, tokensOf(lease.hold) - tokensOf(lease.captured));
}

/** The queue a lease stands in, by its state. */
export function queueOf(state: LedgerState, lease: Lease): Fifo<Lease> {
  if (isClosed(lease.state)) return state.closed;
  if (lease.state === "RECONCILING") return lineOf(state.reconciling, lease.reconcileMs);
  return lineOf(state.open, lease.state === "RESERVED" ? lease.acceptMs : lease.ttlMs);
}

function lineOf(lines: Map<number, Fifo<Lease>>, ms: number): Fifo<Lease> {
  let line = lines.get(ms);
  if (line === undefined) {
    line = new Fifo();
    lines.set(ms, line);
  }
  return line;
}
