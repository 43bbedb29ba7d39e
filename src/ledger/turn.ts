/**
 * One call to a ledger: what is due first, then the command itself. Each command makes one event and
 * is folded before the next is decided; the last event is the reply.
 */
import { SWEEP_LEASES_MAX } from "./bounds.ts";
import { decide } from "./decide.ts";
import { evolve } from "./evolve.ts";
import type { Fifo } from "./fifo.ts";
import type { Lease, LedgerState } from "./state.ts";
import { type Command, isRecorded, type LedgerEvent } from "./types.ts";

/** Changes `state`; the caller records the events or forgets the state. */
export function turn(
  state: LedgerState,
  command: Command,
  nowMs: number,
): { readonly events: LedgerEvent[]; readonly reply: LedgerEvent } {
  const atMs = Math.max(state.nowMs, nowMs);
  const events = sweep(state, atMs);
  const reply = step(state, command, atMs);
  events.push(reply);
  return { events, reply };
}

/** Expires and resolves what is due, a bounded number of leases a call. Each queue is in order of its deadlines. */
export function sweep(state: LedgerState, nowMs: number): LedgerEvent[] {
  const atMs = Math.max(state.nowMs, nowMs);
  const events: LedgerEvent[] = [];
  const drain = (queue: Fifo<Lease>, commandFor: (requestId: string) => Command) => {
    for (let lease = queue.head; lease !== null && lease.expiresAtMs <= atMs; lease = queue.head) {
      if (events.length === SWEEP_LEASES_MAX) return;
      events.push(step(state, commandFor(lease.requestId), atMs));
    }
  };
  for (const queue of state.open.values())
    drain(queue, (requestId) => ({ type: "expire", requestId, cause: "deadline" }));
  drain(state.reconciling, (requestId) => ({ type: "resolve", requestId }));
  return events;
}

/** When the next lease is due; null when none is held. */
export function nextDueAtMs(state: LedgerState): number | null {
  let due: number | null = null;
  for (const { head } of [...state.open.values(), state.reconciling]) {
    if (head !== null && (due === null || head.expiresAtMs < due)) due = head.expiresAtMs;
  }
  return due;
}

function step(state: LedgerState, command: Command, atMs: number): LedgerEvent {
  const event = decide(state, command, atMs);
  if (isRecorded(event)) evolve(state, event);
  else state.nowMs = Math.max(state.nowMs, atMs);
  return event;
}
