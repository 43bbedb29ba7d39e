/**
 * One call to a ledger: what is due first, then the command itself, then whoever can be let in by it. Each
 * command makes one event and is folded before the next is decided.
 */
import { SWEEP_LEASES_MAX } from "./bounds.ts";
import type { Command } from "./commands.ts";
import { decide } from "./decide.ts";
import { evolve } from "./evolve.ts";
import type { Fifo } from "./fifo.ts";
import type { Lease, LedgerState } from "./state.ts";
import type { LedgerEvent } from "./types.ts";
import { drain, overdue } from "./waiting.ts";

export interface Turn {
  readonly events: readonly LedgerEvent[];
  /** The command's own event. */
  readonly reply: LedgerEvent;
}

/** Changes `state`; the caller records the events or forgets the state. */
export function turn(state: LedgerState, command: Command, nowMs: number): Turn {
  const atMs = Math.max(state.nowMs, nowMs);
  const events = sweep(state, atMs);
  const reply = step(state, command, atMs);
  events.push(reply);
  admitWaiters(state, atMs, events);
  return { events, reply };
}

/** What would be decided, leaving no trace but that of the time that has passed. */
export function preview(state: LedgerState, command: Command, nowMs: number): Turn {
  const atMs = Math.max(state.nowMs, nowMs);
  const events = sweep(state, atMs);
  return { events, reply: decide(state, command, atMs) };
}

/** Turns windows, expires and resolves what is due (a bounded number a call), sends waiters away and lets others in. */
export function sweep(state: LedgerState, nowMs: number): LedgerEvent[] {
  const atMs = Math.max(state.nowMs, nowMs);
  state.nowMs = atMs;
  const events: LedgerEvent[] = [];
  for (const { spec, span } of state.definitions.values()) {
    if (span !== null && span.endsAtMs <= atMs)
      events.push(step(state, { type: "turn_window", limit: spec.name }, atMs));
  }
  let looked = 0;
  const expire = (queue: Fifo<Lease>, commandFor: (requestId: string) => Command) => {
    for (let lease = queue.head; lease !== null && looked < SWEEP_LEASES_MAX; lease = queue.head) {
      looked += 1;
      if (lease.expiresAtMs > atMs) return;
      events.push(step(state, commandFor(lease.requestId), atMs));
    }
  };
  for (const queue of state.open.values())
    expire(queue, (requestId) => ({ type: "expire", requestId, cause: "deadline" }));
  for (const queue of state.reconciling.values())
    expire(queue, (requestId) => ({ type: "resolve", requestId, usage: null }));
  for (const requestId of overdue(state, atMs))
    events.push(step(state, { type: "leave", requestId, cause: "deadline" }, atMs));
  admitWaiters(state, atMs, events);
  return events;
}

/** When the next lease is due; null when none is held. */
export function nextDueAtMs(state: LedgerState): number | null {
  let due: number | null = null;
  for (const { head } of [...state.open.values(), ...state.reconciling.values()]) {
    if (head !== null && (due === null || head.expiresAtMs < due)) due = head.expiresAtMs;
  }
  return due;
}

function admitWaiters(state: LedgerState, atMs: number, events: LedgerEvent[]): void {
  if (state.queue.byId.size === 0) return;
  drain(state, atMs, ({ requestId }) => {
    events.push(step(state, { type: "admit", requestId }, atMs));
  });
}

function step(state: LedgerState, command: Command, atMs: number): LedgerEvent {
  const event = decide(state, command, atMs);
  if (event.type !== "unchanged") evolve(state, event);
  return event;
}
