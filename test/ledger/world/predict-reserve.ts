/** Admission by the model: too large, exhausted, behind somebody, queued, let in. */
import type { Reserve } from "../../../src/ledger/commands.ts";
import type { LedgerEvent, Refused } from "../../../src/ledger/types.ts";
import { evidenceOf, exhausted, no, same, shortOf, standings, tooLarge } from "./answers.ts";
import { type Demand, isClosed, type Model, tokens } from "./model.ts";
import { mostEver, type Size } from "./model-limits.ts";
import { isBehind, longestWait } from "./predict-queue.ts";

const ACCEPT_MS = 5_000;
const RETRY_LEAST_MS = 1_000;
const RETRY_MOST_MS = 60_000;

export function predictReserve(model: Model, command: Reserve): LedgerEvent {
  const { requestId } = command;
  const { policy } = model;
  if (policy === null || (policy.hash !== command.policyHash && command.policyEpoch >= policy.epoch))
    return no(model, "need_policy", requestId);
  const lease = model.leases.get(requestId);
  if (lease?.fence === 0) return no(model, "invalid_state", requestId, { state: "RELEASED" });
  const isWaiting = model.waiters.some((waiter) => waiter.command.requestId === requestId);
  if (lease !== undefined || isWaiting) return same(model, requestId);
  const repeat = repeatOf(model, command);
  if (repeat !== null) return repeat;

  const drift = driftOf(model, command);
  const hold = holdOf(model, command, drift);
  const demands = model.demands(command.scope, command.price, hold);
  const large = tooLarge(command, command.perRequestMaxTokens, hold, demands);
  const where = { hold, standings: standings(model, demands, false) };
  if (large !== null) return no(model, "request_too_large", requestId, { ...large, ...where });
  const short = shortOf(model, demands, command.class);
  const behind = short.length === 0 ? isBehind(model, command, demands) : null;
  if (short.length === 0 && behind === null) return letIn(model, command, { drift, hold, demands }, null);
  return waitOrGo(model, command, { drift, hold, demands, short, behind }, where);
}

export function predictAdmit(model: Model, requestId: string): LedgerEvent {
  const waiter = model.waiters.find(({ command }) => command.requestId === requestId);
  if (waiter === undefined || model.policy === null) return same(model, requestId);
  const { command, drift, hold, arrivedAtMs } = waiter;
  const demands = model.demands(command.scope, command.price, hold);
  const large = tooLarge(command, command.perRequestMaxTokens, hold, demands);
  const waitedMs = model.nowMs - arrivedAtMs;
  if (large !== null) {
    model.removeWaiter(requestId);
    const where = { hold, standings: standings(model, demands, false), waitedMs };
    return no(model, "request_too_large", requestId, { ...large, ...where });
  }
  if (shortOf(model, demands, command.class).length > 0) return same(model, requestId);
  return letIn(model, command, { drift, hold, demands }, waitedMs);
}

function repeatOf(model: Model, { requestId, idempotency }: Reserve): LedgerEvent | null {
  if (idempotency === null) return null;
  const waiting = model.waiters.find(({ command }) => command.idempotency?.key === idempotency.key);
  const firstId = waiting?.command.requestId ?? model.keys.get(idempotency.key);
  if (firstId === undefined) return null;
  const lease = waiting === undefined ? model.leases.get(firstId) : undefined;
  const state = lease?.state ?? "PROPOSED";
  const first = waiting?.command.idempotency ?? lease?.idempotency;
  if (first?.digest !== idempotency.digest) return no(model, "idempotency_conflict", requestId, { state });
  if (idempotency.repeat === "same_lease") return same(model, firstId);
  return lease !== undefined && isClosed(lease)
    ? null
    : no(model, "request_in_progress", requestId, { state });
}

/** Of thirty bills that taught something the sums, each older one a sixty-fourth lighter; before that, what was presumed. */
function driftOf(model: Model, { counted, scope }: Reserve): number {
  if (counted === null || counted.basis === "asked") return 1;
  if (counted.basis === "unanswered") return 2.5;
  const taught = model.drifts.get(scope.model);
  if (taught === undefined || taught.samples < 30) return counted.presumedDrift;
  return Math.max(0.5, Math.min(2.5, Math.round((taught.billed / taught.counted) * 1e4) / 1e4));
}

/** Without a declared ceiling: the most output, up to the model's own, that no limit would call too large. */
function holdOf(model: Model, command: Reserve, drift: number): Size {
  const inputTokens = Math.ceil(Number((command.inputTokens * drift).toFixed(4)));
  const { maxOutputTokens, outputDeclared, perRequestMaxTokens, price, scope } = command;
  if (outputDeclared) return { inputTokens, outputTokens: maxOutputTokens };
  const fits = (outputTokens: number) => {
    const size = { inputTokens, outputTokens };
    if (perRequestMaxTokens !== null && tokens(size) > perRequestMaxTokens) return false;
    return model.demands(scope, price, size).every(({ bound, wanted }) => {
      const { unit } = bound.kind.spec;
      const countsOutput = unit === "tokens" || unit === "output_tokens" || unit === "nano_usd";
      return !countsOutput || wanted <= mostEver(bound, command.class);
    });
  };
  let [least, most] = [1, Math.max(1, maxOutputTokens)];
  if (fits(most)) least = most;
  while (most - least > 1) {
    const middle = Math.floor((least + most) / 2);
    if (fits(middle)) least = middle;
    else most = middle;
  }
  return { inputTokens, outputTokens: least };
}

function letIn(
  model: Model,
  command: Reserve,
  { drift, hold, demands }: Pick<NotNow, "drift" | "hold" | "demands">,
  waitedMs: number | null,
): LedgerEvent {
  const { policy, nowMs } = model;
  if (policy === null) throw new Error("nobody is let in without a policy");
  const { requestId, scope, price, idempotency, perRequestMaxTokens, counted, inputTokens } = command;
  // Whoever waited must say that it is sending, and soon.
  const isSent = command.dispatch && waitedMs === null;
  const state = isSent ? "DISPATCHED" : "RESERVED";
  const ttlMs = policy.leaseTtlMs;
  const expiresAtMs = nowMs + (command.dispatch && !isSent ? Math.min(ACCEPT_MS, ttlMs) : ttlMs);
  const after = standings(model, demands, true);
  const charges = demands.map(({ bound: { key, kind }, wanted }) => {
    model.take(key, kind.generation, wanted);
    return { limit: key, generation: kind.generation, amount: wanted };
  });
  const proxied = command.dispatch;
  const common = {
    fence: 1,
    state,
    proxied,
    scope,
    class: command.class,
    price,
    idempotency,
    hold,
    ttlMs,
    expiresAtMs,
  } as const;
  const kept = charges.map((charge) => ({ ...charge, spent: 0 }));
  model.enter({
    id: requestId,
    ...common,
    ceiling: perRequestMaxTokens,
    countedTokens: counted?.basis === "counted" ? inputTokens : null,
    reservedAtMs: nowMs,
    charges: kept,
  });
  return {
    type: "reserved",
    atMs: nowMs,
    requestId,
    ...common,
    rung: "FULL",
    policyHash: policy.hash,
    counted: counted === null ? null : { ...counted, inputTokens, drift },
    perRequestMaxTokens,
    charges,
    standings: after,
    waitedMs: waitedMs ?? 0,
  };
}

interface NotNow {
  readonly drift: number;
  readonly hold: Size;
  readonly demands: readonly Demand[];
  readonly short: readonly Demand[];
  readonly behind: Demand | null;
}

function waitOrGo(
  model: Model,
  command: Reserve,
  { drift, hold, demands, short, behind }: NotNow,
  where: Pick<Refused, "hold" | "standings">,
): LedgerEvent {
  const { requestId, queueMs } = command;
  const longest = longestWait(model, command, demands);
  const { code, ...evidence } =
    behind === null ? evidenceOf(model, command.class, short) : behindEvidence(behind, longest.waitMs);
  const told = { ...evidence, ...where };
  if (queueMs === null || longest.waitMs === Infinity) return no(model, code, requestId, told);
  const { lengthMax, tokensMax } = model.policy?.queue ?? { lengthMax: 0, tokensMax: null };
  const waiting = model.waiters.reduce((sum, waiter) => sum + tokens(waiter.hold), tokens(hold));
  if (model.waiters.length >= lengthMax || (tokensMax !== null && waiting > tokensMax))
    return no(model, "queue_full", requestId, told);
  if (longest.waitMs > queueMs)
    return no(model, "slo_infeasible", requestId, { ...told, retryAfterMs: longest.waitMs });
  const { nowMs } = model;
  const deadlineAtMs = nowMs + queueMs;
  model.waiters = [...model.waiters, { command, drift, hold, arrivedAtMs: nowMs, deadlineAtMs }];
  return {
    type: "queued",
    atMs: nowMs,
    requestId,
    command,
    drift,
    hold,
    limit: longest.demand.bound.key,
    predictedWaitMs: longest.waitMs,
    deadlineAtMs,
    standings: where.standings,
  };
}

/** What is free is spoken for. */
const behindEvidence = (behind: Demand, waitMs: number) => ({
  code: exhausted(behind.bound),
  limit: behind.bound.key,
  requested: behind.wanted,
  available: 0,
  retryAfterMs: Math.max(RETRY_LEAST_MS, Math.min(waitMs, RETRY_MOST_MS)),
});
