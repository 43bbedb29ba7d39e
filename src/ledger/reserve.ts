/** Admission: all limits in one step, or none; and what becomes of a request that fits, but not now. */
import { DRIFT_MAX, driftOf, expectedTokens } from "../estimator/drift.ts";
import { worstCaseOutputTokens } from "../estimator/worst-case.ts";
import type { LedgerPolicy } from "../policy/resolve.ts";
import {
  bindingOf,
  chargesOf,
  codeOf,
  type Demand,
  demandsOf,
  evidenceOf,
  exhausted,
  firstTooLarge,
  instancesFor,
  type Shortage,
  shortages,
  standingsOf,
} from "./admission.ts";
import { outputWithin } from "./amounts.ts";
import { ACCEPT_MS, RETRY_AFTER_MAX_MS, RETRY_AFTER_MIN_MS } from "./bounds.ts";
import type { Admit, Reserve } from "./commands.ts";
import { mostOf } from "./limits.ts";
import { refusal, unchanged } from "./refuse.ts";
import { isClosed, type LedgerState, tokensOf } from "./state.ts";
import type { LedgerEvent, Queued, Refused, Reserved, Size } from "./types.ts";
import { type Forecast, forecast, isBehindSomebody } from "./waiting.ts";

export function decideReserve(state: LedgerState, command: Reserve, atMs: number): LedgerEvent {
  const { requestId } = command;
  const { policy } = state;
  if (policy === null || (policy.hash !== command.policyHash && command.policyEpoch >= policy.epoch))
    return refusal("need_policy", requestId, atMs);
  const repeat = repeated(state, command, atMs);
  if (repeat !== null) return repeat;

  const drift = driftFor(state, command);
  const hold = holdOf(state, command, drift, atMs);
  const demands = demandsOf(state, command, hold, atMs);
  const tooLarge = tooLargeFor(command, hold, demands, atMs);
  if (tooLarge !== null) return tooLarge;
  const short = shortages(state, demands, command.class, atMs);
  const behind = short.length > 0 ? null : isBehindSomebody(state, demands, command.class, atMs);
  if (short.length > 0 || behind !== null)
    return queueOrShed(state, command, policy, { drift, hold, demands, short, behind }, atMs);

  // Past this line the reservation must succeed.
  return reserved(command, policy, { drift, hold, demands }, { atMs, waitedMs: null });
}

/** A waiter's turn has come. */
export function decideAdmit(state: LedgerState, { requestId }: Admit, atMs: number): LedgerEvent {
  const waiter = state.queue.byId.get(requestId);
  if (waiter === undefined || state.policy === null) return unchanged(state, requestId, atMs);
  const { command, drift, hold, arrivedAtMs } = waiter;
  const demands = demandsOf(state, command, hold, atMs);
  const waitedMs = atMs - arrivedAtMs;
  // The policy may have changed meanwhile.
  const tooLarge = tooLargeFor(command, hold, demands, atMs);
  if (tooLarge !== null) return { ...tooLarge, waitedMs };
  if (shortages(state, demands, command.class, atMs).length > 0) return unchanged(state, requestId, atMs);
  // Past this line the reservation must succeed.
  return reserved(command, state.policy, { drift, hold, demands }, { atMs, waitedMs });
}

/** The answer to an id or a key that is known; null for a request that is new. */
function repeated(state: LedgerState, command: Reserve, atMs: number): LedgerEvent | null {
  const { requestId, idempotency } = command;
  const known = state.leases.get(requestId);
  // An id that was closed before its reserve arrived stays closed.
  if (known?.fence === 0) return refusal("invalid_state", requestId, atMs, { state: known.state });
  if (known !== undefined || state.queue.byId.has(requestId)) return unchanged(state, requestId, atMs);
  if (idempotency === null) return null;
  const { key } = idempotency;
  const firstId = state.queue.byIdempotencyKey.get(key) ?? state.byIdempotencyKey.get(key);
  if (firstId === undefined) return null;
  const lease = state.leases.get(firstId);
  const first = lease ?? state.queue.byId.get(firstId)?.command;
  if (first?.idempotency?.digest !== idempotency.digest)
    return refusal("idempotency_conflict", requestId, atMs, { state: lease?.state ?? "PROPOSED" });
  if (idempotency.repeat === "same_lease") return unchanged(state, firstId, atMs);
  if (lease !== undefined && isClosed(lease.state)) return null;
  return refusal("request_in_progress", requestId, atMs, { state: lease?.state ?? "PROPOSED" });
}

/** What is expected to be billed for each token of the input. */
function driftFor(state: LedgerState, { counted, scope }: Reserve): number {
  if (counted === null || counted.basis === "asked") return 1;
  // Whoever was to be asked did not answer: what was learnt is no bound.
  if (counted.basis === "unanswered") return DRIFT_MAX;
  return driftOf(state.drifts.get(scope.model), counted.presumedDrift);
}

/** What to hold: the input, and the most output that the request may bring. */
function holdOf(state: LedgerState, command: Reserve, drift: number, atMs: number): Size {
  const inputTokens = expectedTokens(command.inputTokens, drift);
  const { maxOutputTokens, outputDeclared, perRequestMaxTokens, price } = command;
  // What is left for output beside this input, in each limit that counts it: a ceiling that nobody declared fits them all.
  let roomTokens = perRequestMaxTokens === null ? Infinity : perRequestMaxTokens - inputTokens;
  if (!outputDeclared) {
    for (const limit of instancesFor(state, command.scope, atMs)) {
      const most = mostOf(limit, command.class);
      if (Number.isFinite(most))
        roomTokens = Math.min(roomTokens, outputWithin(limit.definition.spec, inputTokens, most, price));
    }
  }
  return {
    inputTokens,
    outputTokens: worstCaseOutputTokens({ maxOutputTokens, outputDeclared, roomTokens }),
  };
}

/** What can never be admitted is refused at once, before anything is called exhausted. */
function tooLargeFor(command: Reserve, hold: Size, demands: readonly Demand[], atMs: number): Refused | null {
  const refuse = (limit: string, requested: number, available: number) =>
    refusal("request_too_large", command.requestId, atMs, {
      limit,
      requested,
      available,
      hold,
      standings: standingsOf(demands, false, atMs),
    });
  const ceiling = command.perRequestMaxTokens;
  if (ceiling !== null && tokensOf(hold) > ceiling)
    return refuse(`route:${command.scope.route}`, tokensOf(hold), ceiling);
  const tooLarge = firstTooLarge(demands, command.class);
  if (tooLarge === null) return null;
  const { limit, amount } = tooLarge;
  return refuse(limit.key, amount, Math.floor(mostOf(limit, command.class)));
}

interface NotNow {
  readonly drift: number;
  readonly hold: Size;
  readonly demands: readonly Demand[];
  readonly short: readonly Shortage[];
  /** It would fit, but for somebody who waits for this before it. */
  readonly behind: Demand | null;
}

/** It may wait if the route lets it, if there is room to wait in, and if waiting will do. */
function queueOrShed(
  state: LedgerState,
  command: Reserve,
  policy: LedgerPolicy,
  { drift, hold, demands, short, behind }: NotNow,
  atMs: number,
): Queued | Refused {
  const { requestId, queueMs } = command;
  const standings = standingsOf(demands, false, atMs);
  const binding = bindingOf(state, short);
  const predicted = forecast(state, demands, command.class, atMs);
  const evidence =
    binding === null ? behindEvidence(behind, predicted) : evidenceOf(state, binding, command.class, atMs);
  const about = { ...evidence, hold, standings };
  if (queueMs === null || predicted === null || predicted.waitMs === Infinity) {
    const unit = behind?.limit.definition.spec.unit ?? "tokens";
    const code = binding === null ? exhausted(unit) : codeOf(binding, command.class, atMs);
    return refusal(code, requestId, atMs, about);
  }
  const { lengthMax, tokensMax } = policy.queue;
  const full =
    state.queue.byId.size >= lengthMax ||
    (tokensMax !== null && state.queue.tokens + tokensOf(hold) > tokensMax);
  if (full) return refusal("queue_full", requestId, atMs, about);
  if (predicted.waitMs > queueMs)
    return refusal("slo_infeasible", requestId, atMs, { ...about, retryAfterMs: predicted.waitMs });
  return {
    type: "queued",
    atMs,
    requestId,
    command,
    drift,
    hold,
    limit: predicted.demand.limit.key,
    predictedWaitMs: predicted.waitMs,
    deadlineAtMs: atMs + queueMs,
    standings,
  };
}

/** What is free is spoken for. */
const behindEvidence = (behind: Demand | null, predicted: Forecast | null) => ({
  limit: behind?.limit.key ?? null,
  requested: behind?.amount ?? null,
  available: 0,
  retryAfterMs: Math.max(RETRY_AFTER_MIN_MS, Math.min(predicted?.waitMs ?? 0, RETRY_AFTER_MAX_MS)),
});

function reserved(
  command: Reserve,
  policy: LedgerPolicy,
  { drift, hold, demands }: Pick<NotNow, "drift" | "hold" | "demands">,
  { atMs, waitedMs }: { readonly atMs: number; readonly waitedMs: number | null },
): Reserved {
  const { requestId, scope, price, perRequestMaxTokens, idempotency, counted, inputTokens } = command;
  // Whoever waited may have gone, and must say that it is sending.
  const dispatched = command.dispatch && waitedMs === null;
  const ttlMs = policy.leaseTtlMs;
  const acceptMs = command.dispatch && !dispatched ? Math.min(ACCEPT_MS, ttlMs) : ttlMs;
  return {
    type: "reserved",
    atMs,
    requestId,
    fence: 1,
    state: dispatched ? "DISPATCHED" : "RESERVED",
    proxied: command.dispatch,
    rung: "FULL",
    scope,
    class: command.class,
    policyHash: policy.hash,
    counted: counted === null ? null : { ...counted, inputTokens, drift },
    hold,
    price,
    perRequestMaxTokens,
    charges: chargesOf(demands),
    standings: standingsOf(demands, true, atMs),
    waitedMs: waitedMs ?? 0,
    idempotency,
    ttlMs,
    expiresAtMs: atMs + acceptMs,
  };
}
