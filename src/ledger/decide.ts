/**
 * What a command comes to, read from the state and never written to it. Checks stand in order of
 * precedence with early returns; past the marked line the command must succeed.
 */

import {
  bindingOf,
  chargesOf,
  codeOf,
  type Demand,
  demandsOf,
  evidenceOf,
  firstTooLarge,
  shortages,
  standingsOf,
} from "./admission.ts";
import { amountOf } from "./amounts.ts";
import { spanOf } from "./calendar.ts";
import type {
  Capture,
  Command,
  Dispatch,
  Expire,
  Leave,
  Release,
  Resolve,
  Running,
  SetPolicy,
  Settle,
  TakeOver,
  TopUp,
  TurnWindow,
} from "./commands.ts";
import { mostOf, moveOf, windowsAt } from "./limits.ts";
import { invalidState, refusal, unchanged } from "./refuse.ts";
import { decideAdmit, decideReserve } from "./reserve.ts";
import { atLeastCaptured, decideSettle, endOfHold, limitOf, settled } from "./settle.ts";
import { isClosed, isOpen, type Lease, type LedgerState, remainingTokens, tokensOf } from "./state.ts";
import type { LedgerEvent, Move, Size, Usage } from "./types.ts";

/** `atMs` is not before `state.nowMs`: `turn` sees to it. */
export function decide(state: LedgerState, command: Command, atMs: number): LedgerEvent {
  switch (command.type) {
    case "reserve":
      return decideReserve(state, command, atMs);
    case "admit":
      return decideAdmit(state, command, atMs);
    case "leave":
      return decideLeave(state, command, atMs);
    case "release":
      return decideRelease(state, command, atMs);
    case "expire":
      return decideExpire(state, command, atMs);
    case "take_over":
      return decideTakeOver(state, command, atMs);
    case "resolve":
      return decideResolve(state, command, atMs);
    case "turn_window":
      return decideTurnWindow(state, command, atMs);
    case "set_policy":
      return decideSetPolicy(state, command, atMs);
    default:
      return decideOnLease(state, command, atMs);
  }
}

function decideOnLease(
  state: LedgerState,
  command: Dispatch | Running | Capture | TopUp | Settle,
  atMs: number,
): LedgerEvent {
  const lease = state.leases.get(command.requestId);
  if (lease === undefined || lease.fence === 0)
    return refusal("unknown_reservation", command.requestId, atMs);
  // An exact figure is the truth whoever brings it; everything else needs the lease's own fence.
  const truth = command.type === "settle" && command.basis === "exact";
  if (command.fence !== lease.fence && !truth)
    return refusal("stale_fence", command.requestId, atMs, { state: lease.state });
  switch (command.type) {
    case "dispatch":
      return decideDispatch(state, lease, atMs);
    case "running":
      return decideRunning(state, lease, command, atMs);
    case "capture":
      return decideCapture(state, lease, command, atMs);
    case "top_up":
      return decideTopUp(state, lease, command, atMs);
    case "settle":
      checkUsage(command.usage);
      return decideSettle(state, lease, command, atMs);
  }
}

function decideDispatch(state: LedgerState, lease: Lease, atMs: number): LedgerEvent {
  if (lease.state === "DISPATCHED") return unchanged(state, lease.requestId, atMs);
  if (lease.state !== "RESERVED") return invalidState(lease, atMs);
  return { type: "dispatched", ...onLease(lease, atMs), expiresAtMs: atMs + lease.ttlMs };
}

function decideRunning(
  state: LedgerState,
  lease: Lease,
  { providerRequestId }: Running,
  atMs: number,
): LedgerEvent {
  if (isClosed(lease.state)) return invalidState(lease, atMs);
  const known = lease.providerRequestId !== null || (lease.state === "RUNNING" && providerRequestId === null);
  if (known) return unchanged(state, lease.requestId, atMs);
  const dispatches = lease.state === "RESERVED";
  const expiresAtMs = renewed(lease, atMs);
  return { type: "ran", ...onLease(lease, atMs), providerRequestId, dispatches, expiresAtMs };
}

function decideCapture(state: LedgerState, lease: Lease, command: Capture, atMs: number): LedgerEvent {
  if (lease.state === "RESERVED" || isClosed(lease.state)) return invalidState(lease, atMs);
  if (command.usageEventId === lease.lastUsageEventId) return unchanged(state, lease.requestId, atMs);
  checkSize(command.size);
  // Running totals: an older one that arrives late takes nothing back.
  const captured = {
    inputTokens: Math.max(lease.captured.inputTokens, command.size.inputTokens),
    outputTokens: Math.max(lease.captured.outputTokens, command.size.outputTokens),
  };
  const moves: Move[] = [];
  const stillInFlight = Math.max(0, tokensOf(lease.hold) - tokensOf(captured));
  for (const charge of lease.charges) {
    const limit = limitOf(state, charge, atMs);
    if (limit?.definition.spec.unit !== "in_flight_tokens") continue;
    const returned = Math.max(0, charge.amount - stillInFlight);
    if (returned > 0)
      moves.push(moveOf(limit, { returned, spent: 0, credited: 0 }, lease.reservedAtMs, atMs));
  }
  return {
    type: "captured",
    ...onLease(lease, atMs),
    usageEventId: command.usageEventId,
    captured,
    overrunTokens: Math.max(0, tokensOf(captured) - tokensOf(lease.hold)),
    moves,
    expiresAtMs: renewed(lease, atMs),
  };
}

/** The difference is asked for as if it were a request: a longer answer gets no better terms. */
function decideTopUp(state: LedgerState, lease: Lease, { tokens }: TopUp, atMs: number): LedgerEvent {
  if (lease.state !== "RUNNING" && lease.state !== "PARTIALLY_SETTLED") return invalidState(lease, atMs);
  checkSize({ inputTokens: 0, outputTokens: tokens });
  const { requestId, perRequestMaxTokens } = lease;
  const hold = { ...lease.hold, outputTokens: lease.hold.outputTokens + tokens };
  const whole = demandsOf(state, lease, hold, atMs);
  const tooLarge = firstTooLarge(whole, lease.class);
  if (perRequestMaxTokens !== null && tokensOf(hold) > perRequestMaxTokens) {
    const limit = `route:${lease.scope.route}`;
    const evidence = { limit, requested: tokensOf(hold), available: perRequestMaxTokens, hold };
    return refusal("request_too_large", requestId, atMs, evidence);
  }
  if (tooLarge !== null) {
    const available = Math.floor(mostOf(tooLarge.limit, lease.class));
    const evidence = { limit: tooLarge.limit.key, requested: tooLarge.amount, available, hold };
    return refusal("request_too_large", requestId, atMs, evidence);
  }
  // Of what is in flight only the part that is still to come; of the rest the difference.
  const ahead = Math.max(0, tokensOf(hold) - tokensOf(lease.captured)) - remainingTokens(lease);
  const added = demandsOf(state, lease, hold, atMs, (limit, size, price) =>
    limit.unit === "in_flight_tokens"
      ? ahead
      : Math.max(0, amountOf(limit, size, price) - amountOf(limit, lease.hold, price)),
  );
  // A limit or a window that began after the lease did does not count it: it stays where it began.
  const chargeOf = ({ limit }: Demand) =>
    lease.charges.find(
      ({ limit: key, generation }) => key === limit.key && generation === limit.definition.generation,
    );
  const demands = added.filter((demand) => demand.amount > 0 && chargeOf(demand) !== undefined);
  // Whoever is alone in a gauge goes on alone.
  const contested = demands.filter(
    (demand) =>
      demand.limit.definition.spec.kind !== "gauge" || chargeOf(demand)?.amount !== demand.limit.held,
  );
  const binding = bindingOf(state, shortages(state, contested, lease.class, atMs));
  if (binding !== null) {
    const evidence = evidenceOf(state, binding, lease.class, atMs);
    const standings = standingsOf(demands, false, atMs);
    return refusal(codeOf(binding, lease.class, atMs), requestId, atMs, { ...evidence, hold, standings });
  }
  // Past this line the top-up must succeed.
  return {
    type: "topped_up",
    ...onLease(lease, atMs),
    hold,
    charges: chargesOf(demands),
    standings: standingsOf(demands, true, atMs),
    expiresAtMs: renewed(lease, atMs),
  };
}

function decideRelease(state: LedgerState, command: Release, atMs: number): LedgerEvent {
  const { requestId, evidence } = command;
  const lease = state.leases.get(requestId);
  if (lease === undefined) return { type: "forestalled", atMs, requestId };
  // Fence 0: it was released before anybody bore it, and by whatever fence.
  if (command.fence !== null && lease.fence !== 0 && command.fence !== lease.fence)
    return refusal("stale_fence", requestId, atMs, { state: lease.state });
  if (lease.state === "RELEASED") return unchanged(state, requestId, atMs);
  const neverSent = lease.state === "RESERVED";
  // Also of a frozen lease: its outcome is known now. What was captured is proof of the contrary.
  const maySayNo = ["DISPATCHED", "RUNNING", "RECONCILING"].includes(lease.state);
  const sentAndProven = maySayNo && evidence !== null && tokensOf(lease.captured) === 0;
  if (!neverSent && !sentAndProven) return invalidState(lease, atMs);
  // Past this line the release must succeed. The provider counted a call it refused, so its request unit stays spent.
  const keepsRequest = sentAndProven && evidence === "provider_refused";
  const moves = endOfHold(state, lease, atMs, ({ definition: { spec } }) =>
    keepsRequest && spec.unit === "requests" ? 1 : 0,
  );
  return {
    type: "released",
    ...onLease(lease, atMs),
    evidence: neverSent ? "never_sent" : (evidence ?? "not_sent"),
    moves,
  };
}

function decideLeave(state: LedgerState, { requestId, cause }: Leave, atMs: number): LedgerEvent {
  const waiter = state.queue.byId.get(requestId);
  if (waiter === undefined) return unchanged(state, requestId, atMs);
  if (cause === "caller_left") return { type: "left", atMs, requestId };
  if (waiter.deadlineAtMs > atMs) return unchanged(state, requestId, atMs);
  const { command, hold } = waiter;
  const demands = demandsOf(state, command, hold, atMs);
  const binding = bindingOf(state, shortages(state, demands, command.class, atMs));
  const evidence = binding === null ? {} : evidenceOf(state, binding, command.class, atMs);
  const standings = standingsOf(demands, false, atMs);
  const waitedMs = atMs - waiter.arrivedAtMs;
  return refusal("deadline_exceeded", requestId, atMs, { ...evidence, hold, standings, waitedMs });
}

function decideExpire(state: LedgerState, { requestId, cause }: Expire, atMs: number): LedgerEvent {
  const lease = state.leases.get(requestId);
  if (lease === undefined || !isOpen(lease.state)) return unchanged(state, requestId, atMs);
  if (cause === "deadline" && lease.expiresAtMs > atMs) return unchanged(state, requestId, atMs);
  // What never left goes back whole. What may have left stays held, but its slot is free: nobody is using it.
  const to = lease.state === "RESERVED" ? "RELEASED" : "RECONCILING";
  const moves = endOfHold(state, lease, atMs, () => 0).filter(
    (move) => to === "RELEASED" || state.limits.get(move.limit)?.definition.spec.kind === "gauge",
  );
  return { type: "expired", ...onLease(lease, atMs), cause, to, moves };
}

function decideTakeOver(state: LedgerState, { requestId }: TakeOver, atMs: number): LedgerEvent {
  const lease = state.leases.get(requestId);
  if (lease === undefined || lease.fence === 0) return refusal("unknown_reservation", requestId, atMs);
  if (lease.state !== "RECONCILING") return invalidState(lease, atMs);
  return { type: "taken_over", atMs, requestId, fence: lease.fence + 1 };
}

function decideResolve(state: LedgerState, { requestId, usage }: Resolve, atMs: number): LedgerEvent {
  const lease = state.leases.get(requestId);
  if (lease === undefined || lease.fence === 0) return refusal("unknown_reservation", requestId, atMs);
  if (lease.state !== "RECONCILING") return invalidState(lease, atMs);
  if (usage !== null) {
    checkUsage(usage);
    return settled(state, lease, atLeastCaptured(lease, usage), "exact", atMs);
  }
  if (lease.expiresAtMs > atMs) return unchanged(state, requestId, atMs);
  const basis = state.policy?.reconcileCharge ?? "charge_hold";
  // Whoever saw nothing of an answer knows of the prompt only that it was held.
  const { hold, captured } = lease;
  const usual = captured.outputTokens + Math.max(0, state.means.outputTokens - captured.outputTokens);
  const size = {
    inputTokens: hold.inputTokens,
    outputTokens: basis === "charge_hold" ? hold.outputTokens : Math.min(hold.outputTokens, Math.ceil(usual)),
  };
  return settled(state, lease, atLeastCaptured(lease, { ...NO_USAGE, ...size }), basis, atMs);
}

const NO_USAGE: Usage = {
  inputTokens: 0,
  outputTokens: 0,
  cachedInputTokens: 0,
  cacheWriteTokens: 0,
  reasoningTokens: 0,
};

function decideTurnWindow(state: LedgerState, { limit }: TurnWindow, atMs: number): LedgerEvent {
  const definition = state.definitions.get(limit);
  const ended = definition?.span !== null && definition !== undefined && definition.span.endsAtMs <= atMs;
  if (!ended || definition.spec.kind !== "window") return unchanged(state, null, atMs);
  return { type: "window_turned", atMs, limit, span: spanOf(definition.spec, atMs) };
}

function decideSetPolicy(state: LedgerState, { policy }: SetPolicy, atMs: number): LedgerEvent {
  const known = state.policy;
  if (known !== null && (known.hash === policy.hash || known.epoch > policy.epoch))
    return unchanged(state, null, atMs);
  return { type: "policy_set", atMs, policy, windows: windowsAt(policy.limits, atMs) };
}

const onLease = (lease: Lease, atMs: number) => ({ atMs, requestId: lease.requestId, fence: lease.fence });

/** A frozen lease has no holder to renew it. */
const renewed = (lease: Lease, atMs: number): number =>
  lease.state === "RECONCILING" ? lease.expiresAtMs : atMs + lease.ttlMs;

/** Amounts are checked where they enter the system; one that is not whole here is a bug, and must move nothing. */
export function checkSize(size: Size): void {
  checkAmount("inputTokens", size.inputTokens);
  checkAmount("outputTokens", size.outputTokens);
}

function checkUsage(usage: Usage): void {
  checkSize(usage);
  checkAmount("cachedInputTokens", usage.cachedInputTokens);
}

function checkAmount(name: string, tokens: number): void {
  if (!Number.isSafeInteger(tokens) || tokens < 0) throw new RangeError(`${name}: ${tokens}`);
}
