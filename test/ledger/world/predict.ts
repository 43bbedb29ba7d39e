/** What each command must come to, by the protocol as `types.ts` tells it. The model follows as it predicts. */
import type { Capture, Command, Leave, Release, Settle, TopUp } from "../../../src/ledger/commands.ts";
import type { LedgerEvent, Refused, Settled, Usage } from "../../../src/ledger/types.ts";
import { evidenceOf, no, same, standings, tooLarge } from "./answers.ts";
import { isClosed, isOpen, KEPT_MS, type Model, type ModelLease, tokens } from "./model.ts";
import { amount, keyOf, lacking, type Size, sawStay } from "./model-limits.ts";
import { predictAdmit, predictReserve } from "./predict-reserve.ts";

type OnLease = Extract<Command, { type: "dispatch" | "running" | "capture" | "top_up" | "settle" }>;

export function predict(model: Model, command: Command): LedgerEvent {
  switch (command.type) {
    case "set_policy": {
      const { policy } = command;
      const mine = model.policy;
      if (mine !== null && (mine.hash === policy.hash || mine.epoch > policy.epoch)) return same(model, null);
      return { type: "policy_set", atMs: model.nowMs, policy, windows: model.setPolicy(policy) };
    }
    case "turn_window": {
      const span = model.kinds.get(command.limit)?.span ?? null;
      if (span === null || span.endsAtMs > model.nowMs) return same(model, null);
      const { limit } = command;
      return { type: "window_turned", atMs: model.nowMs, limit, span: model.turnWindow(limit) };
    }
    case "reserve":
      return predictReserve(model, command);
    case "admit":
      return predictAdmit(model, command.requestId);
    case "leave":
      return leave(model, command);
    case "release":
      return release(model, command);
    case "expire":
      return expire(model, command);
    case "take_over": {
      const lease = known(model, command.requestId);
      if (lease === null) return no(model, "unknown_reservation", command.requestId);
      if (lease.state !== "RECONCILING") return wrongState(model, lease);
      model.put(lease, { fence: lease.fence + 1 });
      return { type: "taken_over", atMs: model.nowMs, requestId: lease.id, fence: lease.fence + 1 };
    }
    case "resolve":
      return resolve(model, command.requestId, command.usage);
    default:
      return onLease(model, command);
  }
}

const wrongState = (model: Model, lease: ModelLease): Refused =>
  no(model, "invalid_state", lease.id, { state: lease.state });

function known(model: Model, id: string): ModelLease | null {
  const lease = model.leases.get(id);
  return lease === undefined || lease.fence === 0 ? null : lease;
}

const about = (model: Model, { id, fence }: ModelLease) => ({ atMs: model.nowMs, requestId: id, fence });

function onLease(model: Model, command: OnLease): LedgerEvent {
  const lease = known(model, command.requestId);
  if (lease === null) return no(model, "unknown_reservation", command.requestId);
  const isTruth = command.type === "settle" && command.basis === "exact";
  if (!isTruth && command.fence !== lease.fence)
    return no(model, "stale_fence", lease.id, { state: lease.state });
  // A sign of life renews, but for those that nobody holds.
  const expiresAtMs = lease.state === "RECONCILING" ? lease.expiresAtMs : model.nowMs + lease.ttlMs;
  switch (command.type) {
    case "dispatch":
      if (lease.state === "DISPATCHED") return same(model, lease.id);
      if (lease.state !== "RESERVED") return wrongState(model, lease);
      model.put(lease, { state: "DISPATCHED", expiresAtMs });
      return { type: "dispatched", ...about(model, lease), expiresAtMs };
    case "running": {
      if (isClosed(lease)) return wrongState(model, lease);
      const { providerRequestId } = command;
      const isTold = lease.providerRequestId !== null;
      if (isTold || (lease.state === "RUNNING" && providerRequestId === null)) return same(model, lease.id);
      const isFirst = lease.state === "RESERVED" || lease.state === "DISPATCHED";
      model.put(lease, { providerRequestId, expiresAtMs, state: isFirst ? "RUNNING" : lease.state });
      const dispatches = lease.state === "RESERVED";
      return { type: "ran", ...about(model, lease), providerRequestId, dispatches, expiresAtMs };
    }
    case "capture":
      if (lease.state === "RESERVED" || isClosed(lease)) return wrongState(model, lease);
      return capture(model, lease, command, expiresAtMs);
    case "top_up":
      if (lease.state !== "RUNNING" && lease.state !== "PARTIALLY_SETTLED") return wrongState(model, lease);
      return topUp(model, lease, command, expiresAtMs);
    case "settle":
      return settle(model, lease, command);
  }
}

function capture(model: Model, lease: ModelLease, command: Capture, expiresAtMs: number): LedgerEvent {
  const { usageEventId, size } = command;
  if (usageEventId === lease.lastUsageEventId) return same(model, lease.id);
  const captured = {
    inputTokens: Math.max(lease.captured.inputTokens, size.inputTokens),
    outputTokens: Math.max(lease.captured.outputTokens, size.outputTokens),
  };
  // I1: captured + remaining = held, and what goes beyond is an overrun beside it.
  const remaining = Math.max(0, tokens(lease.hold) - tokens(captured));
  const { moves, charges } = model.moves(lease, (charge, { unit }) =>
    unit === "in_flight_tokens" ? { returned: Math.max(0, charge.amount - remaining) } : {},
  );
  const isPartial = isOpen(lease) && tokens(captured) > 0;
  const state = isPartial ? "PARTIALLY_SETTLED" : lease.state;
  model.put(lease, { captured, charges, expiresAtMs, lastUsageEventId: usageEventId, state });
  const overrunTokens = Math.max(0, tokens(captured) - tokens(lease.hold));
  return {
    type: "captured",
    ...about(model, lease),
    usageEventId,
    captured,
    overrunTokens,
    moves,
    expiresAtMs,
  };
}

function topUp(model: Model, lease: ModelLease, command: TopUp, expiresAtMs: number): LedgerEvent {
  const hold: Size = { ...lease.hold, outputTokens: lease.hold.outputTokens + command.tokens };
  const large = tooLarge(lease, lease.ceiling, hold, model.demands(lease.scope, lease.price, hold));
  if (large !== null) return no(model, "request_too_large", lease.id, { ...large, hold });
  // Only what began before the lease did counts it.
  const remaining = (whole: Size) => Math.max(0, tokens(whole) - tokens(lease.captured));
  const added = [...model.kinds.values()].flatMap((kind) => {
    const key = keyOf(kind.spec, lease.scope);
    const isInFlight = kind.spec.unit === "in_flight_tokens";
    const [more, before] = [hold, lease.hold].map((size) =>
      isInFlight ? remaining(size) : amount(kind.spec, size, lease.price),
    );
    const wanted = (more ?? 0) - (before ?? 0);
    const own = lease.charges.find((charge) => charge.limit === key && charge.generation === kind.generation);
    return wanted > 0 && own !== undefined
      ? [{ bound: model.bound(key, kind), wanted, own: own.amount }]
      : [];
  });
  const short = added.filter(({ bound, wanted, own }) => {
    const isAlone = bound.kind.spec.kind === "gauge" && own === bound.held;
    return !isAlone && lacking(bound, wanted, lease.class, model.nowMs) > 0;
  });
  if (short.length > 0) {
    const { code, ...evidence } = evidenceOf(model, lease.class, short);
    return no(model, code, lease.id, { ...evidence, hold, standings: standings(model, added, false) });
  }
  const after = standings(model, added, true);
  const charges = added.map(({ bound: { key, kind }, wanted }) => {
    model.take(key, kind.generation, wanted);
    return { limit: key, generation: kind.generation, amount: wanted };
  });
  const own = lease.charges.map((charge) => {
    const plus = charges.find(
      ({ limit, generation }) => limit === charge.limit && generation === charge.generation,
    );
    return plus === undefined ? charge : { ...charge, amount: charge.amount + plus.amount };
  });
  model.put(lease, { hold, charges: own, expiresAtMs });
  return { type: "topped_up", ...about(model, lease), hold, charges, standings: after, expiresAtMs };
}

/** In a gauge nothing is ever spent. */
const spentIn = (lease: ModelLease, usage: Usage, spec: Parameters<typeof amount>[0]): number =>
  spec.kind === "gauge" ? 0 : amount(spec, usage, lease.price);

function settle(model: Model, lease: ModelLease, { usage, basis }: Settle): LedgerEvent {
  const first = lease.settled;
  if (first === null)
    return book(model, lease, basis === "exact" ? usage : atLeastCaptured(lease, usage), basis);
  const wasGuess = first.basis !== "exact";
  if (basis === "exact" && wasGuess && !first.corrected) {
    const { moves, charges } = model.moves(lease, ({ spent }, spec) => {
      const truth = spentIn(lease, usage, spec);
      return { spent: Math.max(0, truth - spent), credited: Math.max(0, spent - truth) };
    });
    const deltaTokens = tokens(usage) - tokens(first.usage);
    model.put(lease, { charges, settled: { usage, basis: first.basis, corrected: true } });
    return { type: "corrected", ...about(model, lease), usage, moves, deltaTokens };
  }
  const isRepeat = (["inputTokens", "outputTokens", "cachedInputTokens"] as const).every(
    (member) => first.usage[member] === usage[member],
  );
  // The first of two guesses stands.
  if (isRepeat || (wasGuess && basis === "under_estimate")) return same(model, lease.id);
  return no(model, "already_settled", lease.id, { state: "SETTLED" });
}

/** What was captured was seen. */
const atLeastCaptured = ({ captured }: ModelLease, usage: Usage): Usage => ({
  ...usage,
  inputTokens: Math.max(usage.inputTokens, captured.inputTokens),
  outputTokens: Math.max(usage.outputTokens, captured.outputTokens),
});

function book(model: Model, lease: ModelLease, usage: Usage, basis: Settled["basis"]): LedgerEvent {
  const heldTokens = lease.state === "RELEASED" ? 0 : tokens(lease.hold);
  const stayMs = model.nowMs - lease.reservedAtMs;
  const refundedTokens = Math.max(0, heldTokens - tokens(usage));
  const { moves, charges } = model.moves(lease, (charge, spec) => ({
    returned: charge.amount,
    spent: Math.max(0, spentIn(lease, usage, spec) - charge.spent),
  }));
  const isKnown = basis === "exact" || basis === "under_estimate";
  // What nobody could tell teaches nothing, and neither does what was given back before, nor waiting for an outcome.
  if (isKnown && lease.state !== "RELEASED") {
    if (basis === "exact") model.learnBill(lease, usage.inputTokens);
    const { means } = model;
    model.learn({ outputTokens: tenth(means.outputTokens, usage.outputTokens) });
    if (heldTokens > 0) model.learn({ refundShare: tenth(means.refundShare, refundedTokens / heldTokens) });
    if (lease.state !== "RECONCILING") {
      model.learn({ stayMs: tenth(means.stayMs, stayMs) });
      for (const { limit } of lease.charges) {
        const bound = model.bounds.get(limit);
        const { spec } = bound?.kind ?? {};
        if (bound !== undefined && spec?.kind === "gauge" && spec.max === "auto")
          model.putBound(sawStay(bound, stayMs, model.nowMs));
      }
    }
  }
  const expiresAtMs = model.nowMs + KEPT_MS;
  model.put(lease, { state: "SETTLED", charges, settled: { usage, basis, corrected: false }, expiresAtMs });
  const overrunTokens = Math.max(0, tokens(usage) - heldTokens);
  return {
    type: "settled",
    ...about(model, lease),
    usage,
    basis,
    moves,
    refundedTokens,
    overrunTokens,
    stayMs,
  };
}

const tenth = (mean: number, value: number): number => (mean === 0 ? value : mean + (value - mean) * 0.1);

function release(model: Model, { requestId, fence, evidence }: Release): LedgerEvent {
  const lease = model.leases.get(requestId);
  if (lease === undefined) {
    model.forestall(requestId);
    return { type: "forestalled", atMs: model.nowMs, requestId };
  }
  if (fence !== null && lease.fence !== 0 && fence !== lease.fence)
    return no(model, "stale_fence", requestId, { state: lease.state });
  if (lease.state === "RELEASED") return same(model, requestId);
  // I6: what may have been sent comes back on evidence alone, and never against a proof.
  const maySayNo = lease.state === "DISPATCHED" || lease.state === "RUNNING" || lease.state === "RECONCILING";
  const isUnsent = lease.state === "RESERVED";
  if (!isUnsent && !(maySayNo && evidence !== null && tokens(lease.captured) === 0))
    return wrongState(model, lease);
  const { moves, charges } = model.moves(lease, (charge, { unit }) => ({
    returned: charge.amount,
    spent: !isUnsent && evidence === "provider_refused" && unit === "requests" ? 1 : 0,
  }));
  model.put(lease, { state: "RELEASED", charges, expiresAtMs: model.nowMs + KEPT_MS });
  const said = isUnsent || evidence === null ? "never_sent" : evidence;
  return { type: "released", ...about(model, lease), evidence: said, moves };
}

function expire(model: Model, { requestId, cause }: Extract<Command, { type: "expire" }>): LedgerEvent {
  const lease = model.leases.get(requestId);
  if (lease === undefined || !isOpen(lease)) return same(model, requestId);
  if (cause === "deadline" && lease.expiresAtMs > model.nowMs) return same(model, requestId);
  const to = lease.state === "RESERVED" ? "RELEASED" : "RECONCILING";
  const { moves, charges } = model.moves(lease, (charge, { kind }) =>
    to === "RELEASED" || kind === "gauge" ? { returned: charge.amount } : {},
  );
  const ageMs = to === "RELEASED" ? KEPT_MS : (model.policy?.reconcileAgeMaxMs ?? 0);
  model.put(lease, { state: to, charges, expiresAtMs: model.nowMs + ageMs });
  return { type: "expired", ...about(model, lease), cause, to, moves };
}

function leave(model: Model, { requestId, cause }: Leave): LedgerEvent {
  const waiter = model.waiters.find(({ command }) => command.requestId === requestId);
  if (waiter === undefined) return same(model, requestId);
  if (cause === "deadline" && waiter.deadlineAtMs > model.nowMs) return same(model, requestId);
  model.removeWaiter(requestId);
  if (cause === "caller_left") return { type: "left", atMs: model.nowMs, requestId };
  const { command, hold, arrivedAtMs } = waiter;
  const demands = model.demands(command.scope, command.price, hold);
  const short = demands.filter(({ bound, wanted }) => lacking(bound, wanted, command.class, model.nowMs) > 0);
  const { code: _, ...evidence } =
    short.length > 0 ? evidenceOf(model, command.class, short) : { code: null };
  const waitedMs = model.nowMs - arrivedAtMs;
  const where = { hold, standings: standings(model, demands, false), waitedMs };
  return no(model, "deadline_exceeded", requestId, { ...evidence, ...where });
}

function resolve(model: Model, requestId: string, told: Usage | null): LedgerEvent {
  const lease = known(model, requestId);
  if (lease === null) return no(model, "unknown_reservation", requestId);
  if (lease.state !== "RECONCILING") return wrongState(model, lease);
  if (told !== null) return book(model, lease, atLeastCaptured(lease, told), "exact");
  if (lease.expiresAtMs > model.nowMs) return same(model, requestId);
  const basis = model.policy?.reconcileCharge ?? "charge_hold";
  const { inputTokens, outputTokens: most } = lease.hold;
  const expected = Math.ceil(Math.max(lease.captured.outputTokens, model.means.outputTokens));
  const outputTokens = basis === "charge_hold" ? most : Math.min(most, expected);
  const rest = { cachedInputTokens: 0, cacheWriteTokens: 0, reasoningTokens: 0 };
  return book(model, lease, atLeastCaptured(lease, { inputTokens, outputTokens, ...rest }), basis);
}
