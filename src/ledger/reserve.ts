/** Admission: all limits in one step, or none. */
import { worstCaseOutputTokens } from "../estimator/worst-case.ts";
import type { RequestClass } from "../policy/schema.ts";
import { LEVEL_PER_UNIT, RETRY_AFTER_MIN_MS } from "./bounds.ts";
import { amountOf, floorFor, type LimitState, levelAt } from "./limits.ts";
import { refusal } from "./refuse.ts";
import { type LedgerState, openCount, tokensOf } from "./state.ts";
import type { LedgerEvent, RefusalCode, Refused, Reserve, Size, Standing } from "./types.ts";

export function decideReserve(state: LedgerState, command: Reserve, atMs: number): LedgerEvent {
  const { requestId } = command;
  const policy = state.policy;
  const newerPolicy =
    policy === null || (policy.hash !== command.policyHash && command.policyEpoch >= policy.epoch);
  if (newerPolicy) return refusal("need_policy", requestId, atMs);
  const known = state.leases.get(requestId);
  if (known !== undefined) {
    // A repeat is answered as before; an id that was closed before its reserve arrived stays closed.
    if (known.fence > 0) return { type: "unchanged", atMs, requestId };
    return refusal("invalid_state", requestId, atMs, { state: known.state });
  }

  const hold = holdOf(state, command);
  const tooLarge = firstTooLarge(state, command, hold, atMs);
  if (tooLarge !== null) return tooLarge;
  const exhausted = longestWait(state, command, hold, atMs);
  if (exhausted !== null) return exhausted;

  // Past this line the reservation must succeed.
  const charges = [];
  const standings = [];
  for (const limit of state.limits.values()) {
    const amount = amountOf(limit.unit, hold);
    charges.push({ limit: limit.name, generation: limit.generation, amount });
    standings.push({ limit: limit.name, level: levelAt(limit, atMs) / LEVEL_PER_UNIT - amount });
  }
  return {
    type: "reserved",
    atMs,
    requestId,
    fence: 1,
    state: command.dispatch ? "DISPATCHED" : "RESERVED",
    rung: "FULL",
    route: command.route,
    model: command.model,
    class: command.class,
    keyId: command.keyId,
    policyHash: policy.hash,
    hold,
    charges,
    standings,
    ttlMs: policy.leaseTtlMs,
    expiresAtMs: atMs + policy.leaseTtlMs,
  };
}

function holdOf(state: LedgerState, command: Reserve): Size {
  const { inputTokens, maxOutputTokens, outputDeclared, perRequestMaxTokens } = command;
  // What is left for output beside this input, in each limit that counts it: a ceiling that nobody declared fits them all.
  let roomTokens = perRequestMaxTokens === null ? Infinity : perRequestMaxTokens - inputTokens;
  for (const limit of state.limits.values()) {
    if (limit.kind !== "bucket" || (limit.unit !== "tokens" && limit.unit !== "output_tokens")) continue;
    const most = Math.floor(limit.capacity - floorFor(limit, command.class) / LEVEL_PER_UNIT);
    roomTokens = Math.min(roomTokens, limit.unit === "tokens" ? most - inputTokens : most);
  }
  return {
    inputTokens,
    outputTokens: worstCaseOutputTokens({ maxOutputTokens, outputDeclared, roomTokens }),
  };
}

/** What can never be admitted is refused at once, before anything is called exhausted. */
function firstTooLarge(state: LedgerState, command: Reserve, hold: Size, atMs: number): Refused | null {
  const refuse = (limit: string, requested: number, available: number) =>
    refusal("request_too_large", command.requestId, atMs, {
      limit,
      requested,
      available,
      hold,
      standings: standingsOf(state, atMs),
    });
  const ceiling = command.perRequestMaxTokens;
  if (ceiling !== null && tokensOf(hold) > ceiling)
    return refuse(`route:${command.route}`, tokensOf(hold), ceiling);
  for (const limit of state.limits.values()) {
    if (limit.kind !== "bucket") continue;
    const amount = amountOf(limit.unit, hold);
    const most = limit.capacity - floorFor(limit, command.class) / LEVEL_PER_UNIT;
    if (amount > most) return refuse(limit.name, amount, Math.floor(most));
  }
  return null;
}

/** Every limit is tested, in the policy's order; the one that frees last is the one that binds. */
function longestWait(state: LedgerState, command: Reserve, hold: Size, atMs: number): Refused | null {
  let binding: { limit: LimitState; amount: number; free: number; waitMs: number } | null = null;
  for (const limit of state.limits.values()) {
    const amount = amountOf(limit.unit, hold);
    const free = levelAt(limit, atMs) - floorFor(limit, command.class);
    const deficit = amount * LEVEL_PER_UNIT - free;
    if (deficit <= 0) continue;
    // A call larger than the whole gauge goes alone: waiting for room that can never be would be a deadlock.
    if (limit.unit === "in_flight_tokens" && limit.held === 0 && limit.capacity > 0) continue;
    const waitMs = waitFor(state, limit, deficit);
    if (binding === null || waitMs > binding.waitMs) binding = { limit, amount, free, waitMs };
  }
  if (binding === null) return null;
  const { limit, amount, free, waitMs } = binding;
  return refusal(codeOf(limit, command.class, amount, atMs), command.requestId, atMs, {
    limit: limit.name,
    requested: amount,
    available: Math.max(0, Math.floor(free / LEVEL_PER_UNIT)),
    retryAfterMs: Number.isFinite(waitMs) ? waitMs : null,
    hold,
    standings: standingsOf(state, atMs),
  });
}

/** Exact for a bucket; for a gauge the mean time between two settlements. Infinity when nothing will ever free it. */
function waitFor(state: LedgerState, limit: LimitState, deficit: number): number {
  if (limit.kind === "bucket")
    return limit.refillPerMinute === 0 ? Infinity : Math.ceil(deficit / limit.refillPerMinute);
  if (limit.capacity === 0) return Infinity;
  return Math.max(RETRY_AFTER_MIN_MS, Math.ceil(state.meanStayMs / Math.max(1, openCount(state))));
}

function codeOf(limit: LimitState, requestClass: RequestClass, amount: number, atMs: number): RefusalCode {
  if (requestClass === "batch" && levelAt(limit, atMs) >= amount * LEVEL_PER_UNIT) return "below_batch_floor";
  switch (limit.unit) {
    case "requests":
      return "requests_exhausted";
    case "concurrency":
      return "concurrency_exhausted";
    case "in_flight_tokens":
      return "in_flight_exhausted";
    default:
      return "tokens_exhausted";
  }
}

function standingsOf(state: LedgerState, atMs: number): Standing[] {
  return [...state.limits.values()].map((limit) => ({
    limit: limit.name,
    level: levelAt(limit, atMs) / LEVEL_PER_UNIT,
  }));
}
