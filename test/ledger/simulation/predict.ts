/** What each command must come to, by the model. It is asked after the ledger has answered, and checks the answer. */
import { isDeepStrictEqual } from "node:util";
import type { Capture, Command, Release, Reserve, Settle, TopUp } from "../../../src/ledger/commands.ts";
import type { LedgerEvent, Usage } from "../../../src/ledger/types.ts";
import { type Expected, KEPT_MS, type Model, type ModelLease, tokens } from "./model.ts";
import { amount, type Size } from "./model-limits.ts";
import { admitted, predictReserve } from "./predict-reserve.ts";

const closed = (lease: ModelLease) => lease.state === "SETTLED" || lease.state === "RELEASED";
const open = (lease: ModelLease) => !closed(lease) && lease.state !== "RECONCILING";

export const no = (code: string, requestId: string | null, more: object = {}): Expected => ({
  type: "refused",
  code,
  requestId,
  ...more,
});
export const same = (requestId: string | null): Expected => ({ type: "unchanged", requestId });

/** Changes the model as the command must change the ledger. `actual` is looked at for forecasts alone. */
export function predict(model: Model, command: Command, actual: LedgerEvent): Expected {
  const now = model.nowMs;
  switch (command.type) {
    case "set_policy": {
      const { policy } = command;
      const known = model.policy;
      if (known !== null && (known.hash === policy.hash || known.epoch > policy.epoch)) return same(null);
      model.setPolicy(policy);
      return { type: "policy_set", policy };
    }
    case "turn_window":
      return { type: "window_turned", limit: command.limit, span: model.turnWindow(command.limit) };
    case "reserve":
      return predictReserve(model, command, actual);
    case "admit":
      return admitted(model, command.requestId);
    case "leave": {
      const waiter = model.waiters.find((each) => each.command.requestId === command.requestId);
      const early = command.cause === "deadline" && (waiter?.deadlineAtMs ?? 0) > model.nowMs;
      if (waiter === undefined || early) return same(command.requestId);
      model.waiters = model.waiters.filter((each) => each !== waiter);
      if (command.cause === "caller_left") return { type: "left", requestId: command.requestId };
      return no("deadline_exceeded", command.requestId);
    }
    case "release":
      return release(model, command);
    case "expire": {
      const lease = model.leases.get(command.requestId);
      if (lease === undefined || !open(lease)) return same(command.requestId);
      if (command.cause === "deadline" && lease.expiresAtMs > now) return same(command.requestId);
      const to = lease.state === "RESERVED" ? "RELEASED" : "RECONCILING";
      const { moves, charges } = model.moves(lease, ({ amount: held }, { spec }) =>
        to === "RELEASED" || spec.kind === "gauge" ? { returned: held, spent: 0, credited: 0 } : null,
      );
      const keptMs = to === "RELEASED" ? KEPT_MS : (model.policy?.reconcileAgeMaxMs ?? 0);
      model.put(lease, { state: to, charges, expiresAtMs: now + keptMs });
      return { type: "expired", requestId: lease.id, fence: lease.fence, to, moves, cause: command.cause };
    }
    case "take_over": {
      const lease = known(model, command.requestId);
      if (lease === null) return no("unknown_reservation", command.requestId);
      if (lease.state !== "RECONCILING") return no("invalid_state", lease.id, { state: lease.state });
      model.put(lease, { fence: lease.fence + 1 });
      return { type: "taken_over", requestId: lease.id, fence: lease.fence + 1 };
    }
    case "resolve":
      return resolve(model, command.requestId, command.usage);
    default:
      return onLease(model, command);
  }
}

const known = (model: Model, id: string): ModelLease | null => {
  const lease = model.leases.get(id);
  return lease === undefined || lease.fence === 0 ? null : lease;
};

function onLease(
  model: Model,
  command: Extract<Command, { type: "dispatch" | "running" | "capture" | "top_up" | "settle" }>,
): Expected {
  const lease = known(model, command.requestId);
  if (lease === null) return no("unknown_reservation", command.requestId);
  const truth = command.type === "settle" && command.basis === "exact";
  if (!truth && command.fence !== lease.fence) return no("stale_fence", lease.id, { state: lease.state });
  const expiresAtMs = lease.state === "RECONCILING" ? lease.expiresAtMs : model.nowMs + lease.ttlMs;
  const wrongState = no("invalid_state", lease.id, { state: lease.state });
  switch (command.type) {
    case "dispatch":
      if (lease.state === "DISPATCHED") return same(lease.id);
      if (lease.state !== "RESERVED") return wrongState;
      model.put(lease, { state: "DISPATCHED", expiresAtMs });
      return { type: "dispatched", requestId: lease.id, expiresAtMs };
    case "running": {
      if (closed(lease)) return wrongState;
      const { providerRequestId } = command;
      if (lease.providerRequestId !== null || (lease.state === "RUNNING" && providerRequestId === null))
        return same(lease.id);
      const first = lease.state === "RESERVED" || lease.state === "DISPATCHED";
      model.put(lease, { providerRequestId, expiresAtMs, state: first ? "RUNNING" : lease.state });
      return { type: "ran", requestId: lease.id, expiresAtMs, dispatches: lease.state === "RESERVED" };
    }
    case "capture":
      return lease.state === "RESERVED" || closed(lease)
        ? wrongState
        : capture(model, lease, command, expiresAtMs);
    case "top_up":
      return lease.state === "RUNNING" || lease.state === "PARTIALLY_SETTLED"
        ? topUp(model, lease, command, expiresAtMs)
        : wrongState;
    case "settle":
      return settle(model, lease, command);
  }
}

function capture(model: Model, lease: ModelLease, command: Capture, expiresAtMs: number): Expected {
  if (command.usageEventId === lease.lastUsageEventId) return same(lease.id);
  const captured: Size = {
    inputTokens: Math.max(lease.captured.inputTokens, command.size.inputTokens),
    outputTokens: Math.max(lease.captured.outputTokens, command.size.outputTokens),
  };
  // I1: captured + remaining = held, and what goes beyond is an overrun beside it.
  const remaining = Math.max(0, tokens(lease.hold) - tokens(captured));
  const { moves, charges } = model.moves(lease, ({ amount: held }, { spec }) =>
    spec.unit === "in_flight_tokens" && held > remaining
      ? { returned: held - remaining, spent: 0, credited: 0 }
      : null,
  );
  const partial = open(lease) && tokens(captured) > 0;
  model.put(lease, {
    captured,
    charges,
    expiresAtMs,
    lastUsageEventId: command.usageEventId,
    state: partial ? "PARTIALLY_SETTLED" : lease.state,
  });
  const overrunTokens = Math.max(0, tokens(captured) - tokens(lease.hold));
  return { type: "captured", requestId: lease.id, captured, moves, expiresAtMs, overrunTokens };
}

function topUp(model: Model, lease: ModelLease, command: TopUp, expiresAtMs: number): Expected {
  const hold = { ...lease.hold, outputTokens: lease.hold.outputTokens + command.tokens };
  if (lease.ceiling !== null && tokens(hold) > lease.ceiling) return no("request_too_large", lease.id);
  const whole = model.demands(lease.scope, lease.price, hold);
  const { couldAllow, allows } = model.rules;
  if (whole.some(({ bound, wanted }) => !couldAllow(bound, wanted, lease.class)))
    return no("request_too_large", lease.id);
  const added = whole.flatMap(({ bound, wanted }) => {
    const flies = bound.kind.spec.unit === "in_flight_tokens";
    const still = (size: Size) => Math.max(0, tokens(size) - tokens(lease.captured));
    const more = flies
      ? still(hold) - still(lease.hold)
      : Math.max(0, wanted - amount(bound.kind.spec, lease.hold, lease.price));
    const charge = lease.charges.find(
      ({ limit, generation }) => limit === bound.key && generation === bound.kind.generation,
    );
    return more > 0 && charge !== undefined ? [{ bound, more, own: charge.amount }] : [];
  });
  const short = added.find(
    ({ bound, more, own }) =>
      !(bound.kind.spec.kind === "gauge" && own === bound.held) &&
      !allows(bound, more, lease.class, model.nowMs),
  );
  if (short !== undefined) return { type: "refused", requestId: lease.id };
  for (const { bound, more } of added) model.take(bound.key, bound.kind.generation, more);
  const charges = lease.charges.map((charge) => {
    const plus = added.find(({ bound }) => bound.key === charge.limit);
    return plus === undefined ? charge : { ...charge, amount: charge.amount + plus.more };
  });
  model.put(lease, { hold, charges, expiresAtMs });
  return { type: "topped_up", requestId: lease.id, hold, expiresAtMs };
}

function settle(model: Model, lease: ModelLease, { usage, basis }: Settle): Expected {
  const first = lease.settled;
  if (first === null) {
    if (lease.state === "RESERVED") return no("invalid_state", lease.id, { state: "RESERVED" });
    return book(model, lease, basis === "exact" ? usage : atLeast(lease, usage), basis);
  }
  const guessed = first.basis !== "exact";
  if (basis === "exact" && guessed && !first.corrected) {
    const { moves, charges } = model.moves(lease, ({ spent }, { spec }) => {
      const truth = spec.kind === "gauge" ? 0 : amount(spec, usage, lease.price);
      return { returned: 0, spent: Math.max(0, truth - spent), credited: Math.max(0, spent - truth) };
    });
    const deltaTokens = tokens(usage) - tokens(first.usage);
    model.put(lease, { charges, settled: { usage, basis: first.basis, corrected: true } });
    return { type: "corrected", requestId: lease.id, usage, moves, deltaTokens };
  }
  const alike = (["inputTokens", "outputTokens", "cachedInputTokens"] as const).every(
    (member) => first.usage[member] === usage[member],
  );
  if (alike || (guessed && basis === "under_estimate")) return same(lease.id);
  return no("already_settled", lease.id, { state: "SETTLED" });
}

const atLeast = ({ captured }: ModelLease, usage: Usage): Usage => ({
  ...usage,
  inputTokens: Math.max(usage.inputTokens, captured.inputTokens),
  outputTokens: Math.max(usage.outputTokens, captured.outputTokens),
});

function book(model: Model, lease: ModelLease, usage: Usage, basis: string): Expected {
  const held = lease.state === "RELEASED" ? 0 : tokens(lease.hold);
  const { moves, charges } = model.moves(lease, ({ amount: returned, spent }, { spec }) => {
    const truth = spec.kind === "gauge" ? 0 : amount(spec, usage, lease.price);
    return { returned, spent: Math.max(0, truth - spent), credited: 0 };
  });
  const learnt = !basis.startsWith("charge") && lease.state !== "RELEASED";
  if (learnt)
    model.meanOutput =
      model.meanOutput === 0
        ? usage.outputTokens
        : model.meanOutput + (usage.outputTokens - model.meanOutput) * 0.1;
  model.put(lease, {
    state: "SETTLED",
    charges,
    settled: { usage, basis, corrected: false },
    expiresAtMs: model.nowMs + KEPT_MS,
  });
  return {
    type: "settled",
    requestId: lease.id,
    usage,
    basis,
    moves,
    refundedTokens: Math.max(0, held - tokens(usage)),
    overrunTokens: Math.max(0, tokens(usage) - held),
    stayMs: model.nowMs - lease.reservedAtMs,
  };
}

function release(model: Model, { requestId, fence, evidence }: Release): Expected {
  const lease = model.leases.get(requestId);
  if (lease === undefined) {
    model.waiters = model.waiters.filter((waiter) => waiter.command.requestId !== requestId);
    model.forestall(requestId);
    return { type: "forestalled", requestId };
  }
  if (fence !== null && lease.fence !== 0 && fence !== lease.fence)
    return no("stale_fence", requestId, { state: lease.state });
  if (lease.state === "RELEASED") return same(requestId);
  const proven =
    (lease.state === "DISPATCHED" || lease.state === "RUNNING" || lease.state === "RECONCILING") &&
    evidence !== null &&
    tokens(lease.captured) === 0;
  if (lease.state !== "RESERVED" && !proven) return no("invalid_state", requestId, { state: lease.state });
  const keeps = lease.state !== "RESERVED" && evidence === "provider_refused";
  const { moves, charges } = model.moves(lease, ({ amount: returned, spent }, { spec }) => ({
    returned,
    spent: keeps && spec.unit === "requests" ? Math.max(0, 1 - spent) : 0,
    credited: 0,
  }));
  model.put(lease, { state: "RELEASED", charges, expiresAtMs: model.nowMs + KEPT_MS });
  const said = lease.state === "RESERVED" ? "never_sent" : evidence;
  return { type: "released", requestId, evidence: said, moves };
}

function resolve(model: Model, requestId: string, told: Usage | null): Expected {
  const lease = known(model, requestId);
  if (lease === null) return no("unknown_reservation", requestId);
  if (lease.state !== "RECONCILING") return no("invalid_state", requestId, { state: lease.state });
  if (told !== null) return book(model, lease, atLeast(lease, told), "exact");
  if (lease.expiresAtMs > model.nowMs) return same(requestId);
  const basis = model.policy?.reconcileCharge ?? "";
  const usual = Math.ceil(Math.max(lease.captured.outputTokens, model.meanOutput));
  const outputTokens =
    basis === "charge_hold" ? lease.hold.outputTokens : Math.min(lease.hold.outputTokens, usual);
  const nothing = { cachedInputTokens: 0, cacheWriteTokens: 0, reasoningTokens: 0 };
  return book(
    model,
    lease,
    atLeast(lease, { inputTokens: lease.hold.inputTokens, outputTokens, ...nothing }),
    basis,
  );
}

/** Null if the event is as it must be; otherwise the member that is not. */
export function difference(expected: Expected, actual: LedgerEvent): string | null {
  for (const [member, value] of Object.entries(expected)) {
    const found = (actual as unknown as Record<string, unknown>)[member];
    if (member === "moves") {
      const bare = (found as { alert?: unknown }[]).map(({ alert: _alert, ...move }) => move);
      if (!isDeepStrictEqual(bare, value))
        return `${member}: expected ${JSON.stringify(value)}, found ${JSON.stringify(bare)}`;
    } else if (!isDeepStrictEqual(found, value))
      return `${member}: expected ${JSON.stringify(value)}, found ${JSON.stringify(found)}`;
  }
  return null;
}

export type { Reserve };
