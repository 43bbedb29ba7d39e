/**
 * What a command comes to, read from the state and never written to it. Checks stand in order of
 * precedence with early returns; past the marked line the command must succeed.
 */
import { LEVEL_PER_UNIT } from "./bounds.ts";
import { amountOf, type LimitState, levelAt } from "./limits.ts";
import { refusal } from "./refuse.ts";
import { decideReserve } from "./reserve.ts";
import { isOpen, type Lease, type LedgerState, tokensOf } from "./state.ts";
import type {
  Capture,
  Command,
  Expire,
  LedgerEvent,
  Move,
  Release,
  Resolve,
  Running,
  Settle,
  Settled,
  Size,
} from "./types.ts";

/** `atMs` is not before `state.nowMs`: `turn` sees to it. */
export function decide(state: LedgerState, command: Command, atMs: number): LedgerEvent {
  switch (command.type) {
    case "reserve":
      return decideReserve(state, command, atMs);
    case "set_policy": {
      const { policy } = command;
      const known = state.policy;
      if (known !== null && (known.hash === policy.hash || known.epoch > policy.epoch))
        return unchanged(null, atMs);
      return { type: "policy_set", atMs, policy };
    }
    case "release":
      return decideRelease(state, command, atMs);
    case "expire":
      return decideExpire(state, command, atMs);
    case "resolve":
      return decideResolve(state, command, atMs);
    default:
      return decideOnLease(state, command, atMs);
  }
}

type Fenced = Exclude<Command, { type: "reserve" | "set_policy" | "release" | "expire" | "resolve" }>;

function decideOnLease(state: LedgerState, command: Fenced, atMs: number): LedgerEvent {
  const lease = state.leases.get(command.requestId);
  if (lease === undefined || lease.fence === 0)
    return refusal("unknown_reservation", command.requestId, atMs);
  // An exact figure is the truth whoever brings it; everything else needs the lease's own fence.
  const truth = command.type === "settle" && command.basis === "exact";
  if (command.fence !== lease.fence && !truth)
    return refusal("stale_fence", command.requestId, atMs, { state: lease.state });
  switch (command.type) {
    case "dispatch": {
      if (lease.state === "DISPATCHED") return unchanged(lease.requestId, atMs);
      if (lease.state !== "RESERVED") return invalidState(lease, atMs);
      return { type: "dispatched", ...onLease(lease, atMs), expiresAtMs: atMs + lease.ttlMs };
    }
    case "running":
      return decideRunning(lease, command, atMs);
    case "capture":
      return decideCapture(state, lease, command, atMs);
    case "settle":
      return decideSettle(state, lease, command, atMs);
  }
}

function decideRunning(lease: Lease, { providerRequestId }: Running, atMs: number): LedgerEvent {
  if (lease.state === "SETTLED" || lease.state === "RELEASED") return invalidState(lease, atMs);
  if (lease.providerRequestId !== null || (lease.state === "RUNNING" && providerRequestId === null)) {
    return unchanged(lease.requestId, atMs);
  }
  return { type: "ran", ...onLease(lease, atMs), providerRequestId, expiresAtMs: renewed(lease, atMs) };
}

function decideCapture(state: LedgerState, lease: Lease, command: Capture, atMs: number): LedgerEvent {
  if (lease.state === "RESERVED" || lease.state === "SETTLED" || lease.state === "RELEASED")
    return invalidState(lease, atMs);
  if (command.usageEventId === lease.lastUsageEventId) return unchanged(lease.requestId, atMs);
  checkSize(command.size);
  // Running totals: an older one that arrives late takes nothing back.
  const captured = {
    inputTokens: Math.max(lease.captured.inputTokens, command.size.inputTokens),
    outputTokens: Math.max(lease.captured.outputTokens, command.size.outputTokens),
  };
  const moves: Move[] = [];
  for (const charge of lease.charges) {
    const limit = state.limits.get(charge.limit);
    if (limit?.unit !== "in_flight_tokens" || limit.generation !== charge.generation) continue;
    const stillInFlight = Math.max(0, tokensOf(lease.hold) - tokensOf(captured));
    const returned = Math.max(0, charge.amount - stillInFlight);
    if (returned > 0) moves.push({ limit: charge.limit, returned, spent: 0, forfeitedLevel: 0 });
  }
  const { usageEventId } = command;
  return {
    type: "captured",
    ...onLease(lease, atMs),
    usageEventId,
    captured,
    moves,
    expiresAtMs: renewed(lease, atMs),
  };
}

function decideSettle(state: LedgerState, lease: Lease, command: Settle, atMs: number): LedgerEvent {
  checkSize(command.usage);
  if (lease.settlement !== null) {
    const first = lease.settlement.usage;
    const same =
      first.inputTokens === command.usage.inputTokens && first.outputTokens === command.usage.outputTokens;
    return same
      ? unchanged(lease.requestId, atMs)
      : refusal("already_settled", lease.requestId, atMs, { state: lease.state });
  }
  if (lease.state === "RESERVED") return invalidState(lease, atMs);
  // Past this line the settlement must succeed. Usage of a call that was given back is charged all the same.
  return settlement(state, lease, command.usage, command.basis, atMs);
}

function decideRelease(state: LedgerState, command: Release, atMs: number): LedgerEvent {
  const { requestId, evidence } = command;
  const lease = state.leases.get(requestId);
  if (lease === undefined) return { type: "forestalled", atMs, requestId };
  if (command.fence !== null && command.fence !== lease.fence)
    return refusal("stale_fence", requestId, atMs, { state: lease.state });
  if (lease.state === "RELEASED") return unchanged(requestId, atMs);
  const neverSent = lease.state === "RESERVED";
  // Also of a frozen lease: its outcome is known now. What was captured is proof of the contrary.
  const maySayNo = ["DISPATCHED", "RUNNING", "RECONCILING"].includes(lease.state);
  const sentAndProven = maySayNo && evidence !== null && tokensOf(lease.captured) === 0;
  if (!neverSent && !sentAndProven) return invalidState(lease, atMs);
  // Past this line the release must succeed. The provider counted a call it refused, so its request unit stays spent.
  const keepsRequest = sentAndProven && evidence === "provider_refused";
  const moves = movesOf(state, lease, atMs, (limit) => (keepsRequest && limit.unit === "requests" ? 1 : 0));
  return {
    type: "released",
    ...onLease(lease, atMs),
    evidence: neverSent ? "never_sent" : (evidence ?? "not_sent"),
    moves,
  };
}

function decideExpire(state: LedgerState, { requestId, cause }: Expire, atMs: number): LedgerEvent {
  const lease = state.leases.get(requestId);
  if (lease === undefined || !isOpen(lease.state)) return unchanged(requestId, atMs);
  if (cause === "deadline" && lease.expiresAtMs > atMs) return unchanged(requestId, atMs);
  // What never left goes back whole. What may have left stays held, but its slot is free: nobody is using it.
  const to = lease.state === "RESERVED" ? "RELEASED" : "RECONCILING";
  const moves: Move[] = movesOf(state, lease, atMs, () => 0).filter(
    (move) => to === "RELEASED" || state.limits.get(move.limit)?.kind === "gauge",
  );
  return { type: "expired", ...onLease(lease, atMs), cause, to, moves };
}

function decideResolve(state: LedgerState, { requestId }: Resolve, atMs: number): LedgerEvent {
  const lease = state.leases.get(requestId);
  if (lease === undefined || lease.state !== "RECONCILING" || lease.expiresAtMs > atMs)
    return unchanged(requestId, atMs);
  const usage = {
    inputTokens: Math.max(lease.hold.inputTokens, lease.captured.inputTokens),
    outputTokens: Math.max(lease.hold.outputTokens, lease.captured.outputTokens),
    cachedInputTokens: 0,
    cacheWriteTokens: 0,
    reasoningTokens: 0,
  };
  return settlement(state, lease, usage, "charge_hold", atMs);
}

function settlement(
  state: LedgerState,
  lease: Lease,
  usage: Settle["usage"],
  basis: Settled["basis"],
  atMs: number,
): Settled {
  const moves = movesOf(state, lease, atMs, (limit) =>
    limit.kind === "gauge" ? 0 : amountOf(limit.unit, usage),
  );
  const heldTokens = lease.state === "RELEASED" ? 0 : tokensOf(lease.hold);
  return {
    type: "settled",
    ...onLease(lease, atMs),
    usage,
    basis,
    moves,
    refundedTokens: Math.max(0, heldTokens - tokensOf(usage)),
    overrunTokens: Math.max(0, tokensOf(usage) - heldTokens),
    stayMs: atMs - lease.reservedAtMs,
  };
}

/** Ends every hold of the lease and says what is spent in its place, beyond what was spent before. A refund stops at capacity. */
function movesOf(
  state: LedgerState,
  lease: Lease,
  atMs: number,
  spentOf: (limit: LimitState) => number,
): Move[] {
  const moves: Move[] = [];
  for (const charge of lease.charges) {
    const limit = state.limits.get(charge.limit);
    // A later policy dropped the limit, or began another by its name: nothing is left to give back to.
    if (limit?.generation !== charge.generation) continue;
    const returned = charge.amount;
    const spent = Math.max(0, spentOf(limit) - charge.spent);
    if (returned === 0 && spent === 0) continue;
    const level = levelAt(limit, atMs) + (returned - spent) * LEVEL_PER_UNIT;
    const overfull = level - limit.capacity * LEVEL_PER_UNIT;
    const forfeitedLevel = limit.kind === "bucket" ? Math.max(0, overfull) : 0;
    moves.push({ limit: limit.name, returned, spent, forfeitedLevel });
  }
  return moves;
}

const onLease = (lease: Lease, atMs: number) => ({ atMs, requestId: lease.requestId, fence: lease.fence });

const unchanged = (requestId: string | null, atMs: number): LedgerEvent => ({
  type: "unchanged",
  atMs,
  requestId,
});

const invalidState = (lease: Lease, atMs: number): LedgerEvent =>
  refusal("invalid_state", lease.requestId, atMs, { state: lease.state });

/** A frozen lease has no holder to renew it. */
const renewed = (lease: Lease, atMs: number): number =>
  lease.state === "RECONCILING" ? lease.expiresAtMs : atMs + lease.ttlMs;

/** Sizes are checked where they enter the system; one that is not whole here is a bug, and must move nothing. */
export function checkSize(size: Size): void {
  if (!Number.isSafeInteger(size.inputTokens) || size.inputTokens < 0)
    throw new RangeError(`inputTokens: ${size.inputTokens}`);
  if (!Number.isSafeInteger(size.outputTokens) || size.outputTokens < 0)
    throw new RangeError(`outputTokens: ${size.outputTokens}`);
}
