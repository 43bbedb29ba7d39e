/**
 * Folds one event into the state, in place. It never decides and never fails: whatever could go wrong
 * was settled when the event was made, so memory after a restart is this function over the record.
 */
import { learnDrift } from "../estimator/drift.ts";
import { limitNameOf } from "../policy/limit-schema.ts";
import {
  CLOSED_KEPT_MAX,
  CLOSED_KEPT_MS,
  DRIFTS_MAX,
  FORGET_PER_LEASE,
  INSTANCES_LOOKED_AT,
  MEAN_WEIGHT,
} from "./bounds.ts";
import {
  apply,
  atRest,
  carryOver,
  definitionsOf,
  hold,
  type LimitState,
  observe,
  openLimit,
  sameLimit,
  turnWindow,
} from "./limits.ts";
import { isOpen, type Lease, type LedgerState, queueOf, remainingTokens, tokensOf } from "./state.ts";
import type {
  Charge,
  Corrected,
  LeaseState,
  LedgerEvent,
  Move,
  PolicySet,
  Queued,
  Reserved,
  Settled,
  ToppedUp,
  Unchanged,
} from "./types.ts";
import { enqueue, leaveQueue } from "./waiting.ts";

export function evolve(state: LedgerState, event: Exclude<LedgerEvent, Unchanged>): void {
  state.nowMs = Math.max(state.nowMs, event.atMs);
  switch (event.type) {
    case "refused":
      // Those that are about somebody who was let into the queue before.
      if (
        (event.code === "deadline_exceeded" || event.code === "request_too_large") &&
        event.requestId !== null
      )
        leaveQueue(state, event.requestId);
      return;
    case "queued":
      return propose(state, event);
    case "left":
      leaveQueue(state, event.requestId);
      return;
    case "policy_set":
      return setPolicy(state, event);
    case "window_turned": {
      const definition = state.definitions.get(event.limit);
      if (definition === undefined) return;
      state.generation += 1;
      definition.generation = state.generation;
      definition.span = event.span;
      for (const limit of state.limits.values()) if (limit.definition === definition) turnWindow(limit);
      return;
    }
    case "forestalled":
      leaveQueue(state, event.requestId);
      return enter(state, forestalledLease(event.requestId, event.atMs));
    case "reserved":
      return reserve(state, event);
    default:
      return onLease(state, event);
  }
}

type OnLease = Exclude<
  Parameters<typeof evolve>[1],
  { type: "refused" | "queued" | "left" | "policy_set" | "window_turned" | "forestalled" | "reserved" }
>;

/** What each event does to its lease; the lease's new state is the answer. */
function onLease(state: LedgerState, event: OnLease): void {
  const lease = state.leases.get(event.requestId);
  if (lease === undefined)
    throw new Error(`the record moves a lease it never made: ${event.requestId} ${event.type}`);
  const from = queueOf(state, lease);
  const dueBefore = lease.expiresAtMs;
  weigh(state, lease, -1);
  lease.state = edit(state, lease, event);
  weigh(state, lease, 1);
  const to = queueOf(state, lease);
  // Time only rises and a queue has one time-to-live, so whoever was renewed last belongs at the back.
  if (from === to && lease.expiresAtMs === dueBefore) return;
  from.remove(lease);
  to.push(lease);
}

function edit(state: LedgerState, lease: Lease, event: OnLease): LeaseState {
  switch (event.type) {
    case "dispatched":
      lease.expiresAtMs = event.expiresAtMs;
      return "DISPATCHED";
    case "ran":
      lease.providerRequestId = event.providerRequestId;
      lease.expiresAtMs = event.expiresAtMs;
      return lease.state === "DISPATCHED" || lease.state === "RESERVED" ? "RUNNING" : lease.state;
    case "captured":
      move(state, lease, event.moves, event.atMs);
      lease.captured = event.captured;
      lease.lastUsageEventId = event.usageEventId;
      lease.expiresAtMs = event.expiresAtMs;
      return isOpen(lease.state) && tokensOf(event.captured) > 0 ? "PARTIALLY_SETTLED" : lease.state;
    case "topped_up":
      topUp(state, lease, event);
      return lease.state;
    case "settled":
      settle(state, lease, event);
      return "SETTLED";
    case "corrected":
      correct(state, lease, event);
      return "SETTLED";
    case "released":
      move(state, lease, event.moves, event.atMs);
      lease.expiresAtMs = event.atMs + CLOSED_KEPT_MS;
      return "RELEASED";
    case "taken_over":
      lease.fence = event.fence;
      return lease.state;
    case "expired": {
      move(state, lease, event.moves, event.atMs);
      const reconcileMs = state.policy?.reconcileAgeMaxMs ?? CLOSED_KEPT_MS;
      lease.expiresAtMs = event.atMs + (event.to === "RELEASED" ? CLOSED_KEPT_MS : reconcileMs);
      lease.reconcileMs = reconcileMs;
      return event.to;
    }
  }
}

function settle(state: LedgerState, lease: Lease, event: Settled): void {
  const { usage, basis, atMs, stayMs, refundedTokens } = event;
  const heldTokens = tokensOf(lease.hold);
  move(state, lease, event.moves, atMs);
  lease.settlement = { usage, basis, corrected: false };
  lease.expiresAtMs = atMs + CLOSED_KEPT_MS;
  // What nobody could tell teaches nothing, and neither does what was given back before.
  if (basis === "charge_hold" || basis === "charge_captured" || lease.state === "RELEASED") return;
  if (basis === "exact") learnBill(state, lease, usage.inputTokens);
  const { means } = state;
  means.outputTokens = approach(means.outputTokens, usage.outputTokens);
  if (heldTokens > 0) means.refundShare = approach(means.refundShare, refundedTokens / heldTokens);
  // Nor a stay that ended in waiting for the outcome.
  if (lease.state === "RECONCILING") return;
  means.stayMs = approach(means.stayMs, stayMs);
  for (const charge of lease.charges) {
    const limit = state.limits.get(charge.limit);
    if (limit !== undefined) observe(limit, stayMs, atMs);
  }
}

/** The model that was taught moves to the back. */
function learnBill(state: LedgerState, { scope, countedTokens }: Lease, billedTokens: number): void {
  if (countedTokens === null || countedTokens === 0 || billedTokens === 0) return;
  const { drifts } = state;
  const known = drifts.get(scope.model);
  drifts.delete(scope.model);
  drifts.set(scope.model, learnDrift(known, countedTokens, billedTokens));
  const [oldest] = drifts.keys();
  if (drifts.size > DRIFTS_MAX && oldest !== undefined) drifts.delete(oldest);
}

const approach = (mean: number, value: number): number =>
  mean === 0 ? value : mean + (value - mean) * MEAN_WEIGHT;

function correct(state: LedgerState, lease: Lease, event: Corrected): void {
  move(state, lease, event.moves, event.atMs);
  if (lease.settlement !== null)
    lease.settlement = { ...lease.settlement, usage: event.usage, corrected: true };
}

function topUp(state: LedgerState, lease: Lease, event: ToppedUp): void {
  takeHold(state, event.charges, event.atMs);
  for (const added of event.charges) {
    const charge = lease.charges.find(({ limit }) => limit === added.limit);
    if (charge?.generation === added.generation) charge.amount += added.amount;
  }
  lease.hold = event.hold;
  lease.expiresAtMs = event.expiresAtMs;
}

function setPolicy(state: LedgerState, { policy, windows, atMs }: PolicySet): void {
  state.policy = policy;
  state.generation += 1;
  const before = state.definitions;
  state.definitions = definitionsOf(policy, windows, state.generation);
  for (const [name, definition] of state.definitions) {
    const known = before.get(name);
    if (known === undefined || !sameLimit(known.spec, definition.spec)) continue;
    definition.generation = known.generation;
    definition.span = known.span;
  }
  for (const [key, limit] of state.limits) {
    const next = state.definitions.get(limitNameOf(key));
    // At rest it may have been forgotten, or not yet: what a new policy makes of it must not depend on that.
    if (atRest(limit, atMs)) state.limits.delete(key);
    else if (next?.generation === limit.definition.generation) carryOver(limit, next, atMs);
    else state.limits.delete(key);
  }
  // Those without a scope are there from the start, to be seen before anyone has asked.
  for (const { spec } of state.definitions.values())
    if (spec.per.every((dimension) => dimension === "tenant")) limitFor(state, spec.name, atMs);
}

function reserve(state: LedgerState, event: Reserved): void {
  leaveQueue(state, event.requestId);
  takeHold(state, event.charges, event.atMs);
  enter(state, {
    requestId: event.requestId,
    fence: event.fence,
    proxied: event.proxied,
    scope: event.scope,
    class: event.class,
    price: event.price,
    perRequestMaxTokens: event.perRequestMaxTokens,
    idempotency: event.idempotency,
    countedTokens: event.counted?.basis === "counted" ? event.counted.inputTokens : null,
    reservedAtMs: event.atMs,
    acceptMs: event.expiresAtMs - event.atMs,
    ttlMs: event.ttlMs,
    reconcileMs: 0,
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

const NOBODY = { class: "", route: "", model: "", pool: "", key: "", user: "" };

/** Fence 0 marks an id whose release came first: no reserve ever bore it. */
function forestalledLease(requestId: string, atMs: number): Lease {
  const nothing = { inputTokens: 0, outputTokens: 0 };
  return {
    requestId,
    fence: 0,
    proxied: true,
    scope: NOBODY,
    class: "interactive",
    price: null,
    perRequestMaxTokens: null,
    idempotency: null,
    countedTokens: null,
    reservedAtMs: atMs,
    acceptMs: 0,
    ttlMs: 0,
    reconcileMs: 0,
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
  if (lease.idempotency !== null) state.byIdempotencyKey.set(lease.idempotency.key, lease.requestId);
  queueOf(state, lease).push(lease);
  weigh(state, lease, 1);
  forgetLeases(state);
}

function propose(state: LedgerState, event: Queued): void {
  const { requestId, command, drift, hold: size, atMs, deadlineAtMs } = event;
  enqueue(state, {
    requestId,
    command,
    drift,
    hold: size,
    arrivedAtMs: atMs,
    deadlineAtMs,
    next: null,
    previous: null,
  });
}

/** The running sums that balance reads, so that reading is O(limits). */
function weigh(state: LedgerState, lease: Lease, sign: 1 | -1): void {
  if (lease.state === "RECONCILING") state.reconcilingTokens += sign * tokensOf(lease.hold);
  else if (isOpen(lease.state)) state.inFlightTokens += sign * remainingTokens(lease);
}

function takeHold(state: LedgerState, charges: readonly Charge[], atMs: number): void {
  for (const charge of charges) {
    const limit = limitFor(state, charge.limit, atMs);
    if (limit?.definition.generation === charge.generation) hold(limit, charge.amount, atMs);
  }
}

function move(state: LedgerState, lease: Lease, moves: readonly Move[], atMs: number): void {
  for (const one of moves) {
    const charge = lease.charges.find((candidate) => candidate.limit === one.limit);
    if (charge === undefined)
      throw new Error(`the record moves ${one.limit} for ${lease.requestId}, which never held it`);
    charge.amount -= one.returned;
    charge.spent += one.spent - one.credited;
    const limit = limitFor(state, one.limit, atMs);
    if (limit?.definition.generation === charge.generation) apply(limit, one, lease.reservedAtMs, atMs);
  }
}

/** The instance, opened at its first use. Scoped ones move to the back, so that those out of use come first. */
function limitFor(state: LedgerState, key: string, atMs: number): LimitState | null {
  const known = state.limits.get(key);
  const name = limitNameOf(key);
  if (known !== undefined) {
    if (name !== key) {
      state.limits.delete(key);
      state.limits.set(key, known);
    }
    return known;
  }
  const definition = state.definitions.get(name);
  if (definition === undefined) return null;
  const opened = openLimit(key, definition, atMs);
  forgetLimits(state, atMs);
  state.limits.set(key, opened);
  return opened;
}

/** Looks at those longest out of use: at rest they are forgotten, otherwise they go to the back. */
function forgetLimits(state: LedgerState, atMs: number): void {
  let looked = 0;
  for (const [key, limit] of state.limits) {
    if (looked === INSTANCES_LOOKED_AT) return;
    looked += 1;
    state.limits.delete(key);
    if (!atRest(limit, atMs)) state.limits.set(key, limit);
  }
}

/** Bounded per lease, and part of the fold, so that a restart forgets exactly what memory forgot. */
function forgetLeases(state: LedgerState): void {
  for (let forgotten = 0; forgotten < FORGET_PER_LEASE; forgotten += 1) {
    const oldest = state.closed.head;
    if (oldest === null || (oldest.expiresAtMs > state.nowMs && state.closed.length <= CLOSED_KEPT_MAX))
      return;
    state.closed.remove(oldest);
    state.leases.delete(oldest.requestId);
    const key = oldest.idempotency?.key;
    // A later attempt may bear the key by now.
    if (key !== undefined && state.byIdempotencyKey.get(key) === oldest.requestId)
      state.byIdempotencyKey.delete(key);
  }
}
