/**
 * Folds one event into the state, in place. It never decides and never fails: whatever could go wrong
 * was settled when the event was made, so memory after a restart is this function over the record.
 */
import {
  CLOSED_KEPT_MAX,
  CLOSED_KEPT_MS,
  FORGET_PER_EVENT_MAX,
  LEVEL_PER_UNIT,
  STAY_MEAN_WEIGHT,
} from "./bounds.ts";
import { carryOver, type LimitState, levelAt, openLimit } from "./limits.ts";
import { isOpen, type Lease, type LedgerState, queueOf, remainingTokens, tokensOf } from "./state.ts";
import type { LeaseState, LedgerEvent, Move, PolicySet, RecordedEvent, Reserved } from "./types.ts";

export function evolve(state: LedgerState, event: RecordedEvent): void {
  state.nowMs = Math.max(state.nowMs, event.atMs);
  apply(state, event);
  forget(state);
}

function apply(state: LedgerState, event: RecordedEvent): void {
  switch (event.type) {
    case "policy_set":
      return setPolicy(state, event);
    case "forestalled":
      return enter(state, forestalledLease(event.requestId, event.atMs));
    case "reserved":
      return reserve(state, event);
    case "dispatched":
      return change(state, event, (lease) => {
        lease.expiresAtMs = event.expiresAtMs;
        return "DISPATCHED";
      });
    case "ran":
      return change(state, event, (lease) => {
        lease.providerRequestId = event.providerRequestId;
        lease.expiresAtMs = event.expiresAtMs;
        return lease.state === "DISPATCHED" || lease.state === "RESERVED" ? "RUNNING" : lease.state;
      });
    case "captured":
      return change(state, event, (lease) => {
        move(state, lease, event.moves, event.atMs);
        lease.captured = event.captured;
        lease.lastUsageEventId = event.usageEventId;
        lease.expiresAtMs = event.expiresAtMs;
        return isOpen(lease.state) && tokensOf(event.captured) > 0 ? "PARTIALLY_SETTLED" : lease.state;
      });
    case "settled":
      return change(state, event, (lease) => {
        move(state, lease, event.moves, event.atMs);
        lease.settlement = { usage: event.usage, basis: event.basis };
        lease.expiresAtMs = event.atMs + CLOSED_KEPT_MS;
        if (event.basis !== "charge_hold") {
          const first = state.meanStayMs === 0;
          state.meanStayMs += (event.stayMs - state.meanStayMs) * (first ? 1 : STAY_MEAN_WEIGHT);
        }
        return "SETTLED";
      });
    case "released":
      return change(state, event, (lease) => {
        move(state, lease, event.moves, event.atMs);
        lease.expiresAtMs = event.atMs + CLOSED_KEPT_MS;
        return "RELEASED";
      });
    case "expired":
      return change(state, event, (lease) => {
        move(state, lease, event.moves, event.atMs);
        const keptMs =
          event.to === "RELEASED" ? CLOSED_KEPT_MS : (state.policy?.reconcileAgeMaxMs ?? CLOSED_KEPT_MS);
        lease.expiresAtMs = event.atMs + keptMs;
        return event.to;
      });
  }
}

function setPolicy(state: LedgerState, { policy, atMs }: PolicySet): void {
  const previous = new Map(state.limits);
  state.policy = policy;
  state.generation += 1;
  state.limits.clear();
  for (const limit of policy.limits) {
    const opened = openLimit(limit, state.generation, atMs);
    if (opened === null) continue;
    const before = previous.get(limit.name);
    const same = before !== undefined && before.kind === opened.kind && before.unit === opened.unit;
    state.limits.set(limit.name, same ? carryOver(before, opened, atMs) : opened);
  }
}

function reserve(state: LedgerState, event: Reserved): void {
  for (const charge of event.charges) {
    const limit = state.limits.get(charge.limit);
    if (limit?.generation !== charge.generation) continue;
    advance(limit, event.atMs);
    limit.level -= charge.amount * LEVEL_PER_UNIT;
    limit.held += charge.amount;
  }
  enter(state, {
    requestId: event.requestId,
    fence: event.fence,
    route: event.route,
    model: event.model,
    reservedAtMs: event.atMs,
    ttlMs: event.ttlMs,
    hold: event.hold,
    state: event.state,
    captured: { inputTokens: 0, outputTokens: 0 },
    charges: event.charges.map((charge) => ({ ...charge, spent: 0 })),
    expiresAtMs: event.expiresAtMs,
    lastUsageEventId: null,
    providerRequestId: null,
    settlement: null,
    next: null,
    previous: null,
  });
}

/** Fence 0 marks an id whose release came first: no reserve ever bore it. */
function forestalledLease(requestId: string, atMs: number): Lease {
  const nothing = { inputTokens: 0, outputTokens: 0 };
  return {
    requestId,
    fence: 0,
    route: "",
    model: "",
    reservedAtMs: atMs,
    ttlMs: 0,
    hold: nothing,
    state: "RELEASED",
    captured: nothing,
    charges: [],
    expiresAtMs: atMs + CLOSED_KEPT_MS,
    lastUsageEventId: null,
    providerRequestId: null,
    settlement: null,
    next: null,
    previous: null,
  };
}

function enter(state: LedgerState, lease: Lease): void {
  state.leases.set(lease.requestId, lease);
  queueOf(state, lease).push(lease);
  weigh(state, lease, 1);
}

function change(
  state: LedgerState,
  event: Exclude<LedgerEvent, { requestId?: null }> & { requestId: string },
  edit: (lease: Lease) => LeaseState,
): void {
  const lease = state.leases.get(event.requestId);
  if (lease === undefined)
    throw new Error(`the record moves a lease it never made: ${event.requestId} ${event.type}`);
  const from = queueOf(state, lease);
  const dueBefore = lease.expiresAtMs;
  weigh(state, lease, -1);
  lease.state = edit(lease);
  weigh(state, lease, 1);
  const to = queueOf(state, lease);
  // Time only rises and a queue has one time-to-live, so whoever was renewed last belongs at the back.
  if (from === to && lease.expiresAtMs === dueBefore) return;
  from.remove(lease);
  to.push(lease);
}

/** The running sums that balance reads, so that reading is O(limits). */
function weigh(state: LedgerState, lease: Lease, sign: 1 | -1): void {
  if (lease.state === "RECONCILING") state.reconcilingTokens += sign * tokensOf(lease.hold);
  else if (isOpen(lease.state)) state.inFlightTokens += sign * remainingTokens(lease);
}

function move(state: LedgerState, lease: Lease, moves: readonly Move[], atMs: number): void {
  for (const { limit: name, returned, spent, forfeitedLevel } of moves) {
    const charge = lease.charges.find((candidate) => candidate.limit === name);
    if (charge === undefined)
      throw new Error(`the record moves ${name} for ${lease.requestId}, which never held it`);
    charge.amount -= returned;
    charge.spent += spent;
    const limit = state.limits.get(name);
    if (limit?.generation !== charge.generation) continue;
    advance(limit, atMs);
    limit.level += (returned - spent) * LEVEL_PER_UNIT - forfeitedLevel;
    limit.held -= returned;
    limit.settledTotal += spent;
    limit.forfeitedLevel += forfeitedLevel;
  }
}

function advance(limit: LimitState, atMs: number): void {
  limit.level = levelAt(limit, atMs);
  limit.asOfMs = Math.max(limit.asOfMs, atMs);
}

/** Bounded per event, and part of the fold, so that a restart forgets exactly what memory forgot. */
function forget(state: LedgerState): void {
  for (let forgotten = 0; forgotten < FORGET_PER_EVENT_MAX; forgotten += 1) {
    const oldest = state.closed.head;
    if (oldest === null || (oldest.expiresAtMs > state.nowMs && state.closed.length <= CLOSED_KEPT_MAX))
      return;
    state.closed.remove(oldest);
    state.leases.delete(oldest.requestId);
  }
}
