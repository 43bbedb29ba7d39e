/** A ledger in memory. Only `evolve` changes it. */
import type { LedgerPolicy } from "../policy/resolve.ts";
import { Fifo, type Node } from "./fifo.ts";
import type { LimitState } from "./limits.ts";
import type { LeaseState, Settled, Size, Usage } from "./types.ts";

export interface Lease extends Node<Lease> {
  readonly requestId: string;
  readonly fence: number;
  readonly route: string;
  readonly model: string;
  readonly reservedAtMs: number;
  readonly ttlMs: number;
  /** What was held at reserve; `captured` may pass it, and what passes it is the overrun. */
  readonly hold: Size;
  state: LeaseState;
  captured: Size;
  /** What is still held of each limit, and what was spent of it already, in its unit. */
  readonly charges: { readonly limit: string; readonly generation: number; amount: number; spent: number }[];
  /** The end of the holder's time; in RECONCILING, of the time to find out; once closed, of being remembered. */
  expiresAtMs: number;
  lastUsageEventId: string | null;
  providerRequestId: string | null;
  /** Set once it is SETTLED. */
  settlement: { readonly usage: Usage; readonly basis: Settled["basis"] } | null;
}

export interface LedgerState {
  /** The latest time seen; it only rises, whatever the clock does. */
  nowMs: number;
  policy: LedgerPolicy | null;
  /** How many policies there have been. */
  generation: number;
  readonly limits: Map<string, LimitState>;
  readonly leases: Map<string, Lease>;
  /** Leases whose holder is alive, by time-to-live. */
  readonly open: Map<number, Fifo<Lease>>;
  readonly reconciling: Fifo<Lease>;
  /** SETTLED and RELEASED, remembered for late and repeated calls. */
  readonly closed: Fifo<Lease>;
  /** How long a call stays, from reserve to settlement; 0 until one has. */
  meanStayMs: number;
  /** Tokens of open holds that have not been captured, and of the frozen ones. */
  inFlightTokens: number;
  reconcilingTokens: number;
}

export function emptyState(): LedgerState {
  return {
    nowMs: 0,
    policy: null,
    generation: 0,
    limits: new Map(),
    leases: new Map(),
    open: new Map(),
    reconciling: new Fifo(),
    closed: new Fifo(),
    meanStayMs: 0,
    inFlightTokens: 0,
    reconcilingTokens: 0,
  };
}

export function isOpen(state: LeaseState): boolean {
  return state !== "SETTLED" && state !== "RELEASED" && state !== "RECONCILING";
}

export function openCount(state: LedgerState): number {
  let count = 0;
  for (const queue of state.open.values()) count += queue.length;
  return count;
}

export function tokensOf(size: Size): number {
  return size.inputTokens + size.outputTokens;
}

/** I1: captured + remaining = reserved; what was captured beyond the hold is overrun, beside it. */
export function remainingTokens(lease: Lease): number {
  return Math.max(0, tokensOf(lease.hold) - tokensOf(lease.captured));
}

/** The queue a lease stands in, by its state. */
export function queueOf(state: LedgerState, lease: Lease): Fifo<Lease> {
  if (lease.state === "RECONCILING") return state.reconciling;
  if (!isOpen(lease.state)) return state.closed;
  let queue = state.open.get(lease.ttlMs);
  if (queue === undefined) {
    queue = new Fifo();
    state.open.set(lease.ttlMs, queue);
  }
  return queue;
}
