/** Admission by the model: too large, exhausted, behind somebody, queued, let in. */
import type { Reserve } from "../../../src/ledger/commands.ts";
import type { LedgerEvent } from "../../../src/ledger/types.ts";
import { type Expected, type Model, type ModelWaiter, tokens } from "./model.ts";
import {
  allows,
  type Bound,
  belowFloor,
  capacity,
  couldAllow,
  floor,
  free,
  freesInMs,
  levelAt,
  type Size,
} from "./model-limits.ts";

const no = (code: string, requestId: string, more: object = {}): Expected => ({
  type: "refused",
  code,
  requestId,
  ...more,
});

type Demand = { readonly bound: Bound; readonly wanted: number };

const BATCH_LAG_MS = 30_000;
const ACCEPT_MS = 5_000;
const ADMIT_MAX = 64;

export function predictReserve(model: Model, command: Reserve, actual: LedgerEvent): Expected {
  const { requestId, idempotency } = command;
  const { policy } = model;
  if (policy === null || (policy.hash !== command.policyHash && command.policyEpoch >= policy.epoch))
    return no("need_policy", requestId);
  const lease = model.leases.get(requestId);
  if (lease?.fence === 0) return no("invalid_state", requestId, { state: "RELEASED" });
  if (lease !== undefined || waiterOf(model, requestId) !== undefined)
    return { type: "unchanged", requestId };
  if (idempotency !== null) {
    const answer = repeat(model, command);
    if (answer !== null) return answer;
  }
  const hold = holdOf(model, command);
  const demands = model.demands(command.scope, command.price, hold);
  const ceiling = command.perRequestMaxTokens;
  if (ceiling !== null && tokens(hold) > ceiling)
    return no("request_too_large", requestId, { limit: `route:${command.scope.route}`, available: ceiling });
  const large = demands.find(({ bound, wanted }) => !couldAllow(bound, wanted, command.class));
  if (large !== undefined)
    return no("request_too_large", requestId, { limit: large.bound.key, requested: large.wanted });
  const short = demands.filter(({ bound, wanted }) => !allows(bound, wanted, command.class, model.nowMs));
  const behind = short.length === 0 ? isBehind(model, command, demands) : null;
  if (short.length === 0 && behind === null) return letIn(model, command, hold, demands, null);
  return waitOrGo(model, command, { hold, demands, short, behind }, actual);
}

export function admitted(model: Model, requestId: string): Expected {
  const waiter = waiterOf(model, requestId);
  if (waiter === undefined) return { type: "unchanged", requestId };
  const { command, hold, arrivedAtMs } = waiter;
  model.waiters = model.waiters.filter((other) => other !== waiter);
  const demands = model.demands(command.scope, command.price, hold);
  const large =
    (command.perRequestMaxTokens !== null && tokens(hold) > command.perRequestMaxTokens) ||
    demands.some(({ bound, wanted }) => !couldAllow(bound, wanted, command.class));
  if (large) return no("request_too_large", requestId, { waitedMs: model.nowMs - arrivedAtMs });
  return letIn(model, command, hold, demands, model.nowMs - arrivedAtMs);
}

/**
 * Whose turn it is, in one pass over the queue; and whom a new policy has made too large, whom the ledger sends
 * away when it comes to them.
 */
export function nextIn(model: Model): { readonly requestId: string; readonly never: boolean }[] {
  // A trial: the model itself is changed when the events are compared.
  const trial = model.copy(model.nowMs);
  trial.waiters = [...model.waiters];
  const lacking = new Map<string, "all" | "batch">();
  const turns: { readonly requestId: string; readonly never: boolean }[] = [];
  for (const waiter of inOrder(model)) {
    const { command, hold } = waiter;
    const demands = trial.demands(command.scope, command.price, hold);
    const never = demands.some(({ bound, wanted }) => !couldAllow(bound, wanted, command.class));
    if (!never && heldBack(demands, command.class, lacking)) continue;
    const short = never
      ? []
      : demands.filter(({ bound, wanted }) => !allows(bound, wanted, command.class, model.nowMs));
    if (short.length > 0) {
      note(lacking, short, command.class, model.nowMs);
      continue;
    }
    turns.push({ requestId: command.requestId, never });
    admitted(trial, command.requestId);
    if (turns.length === ADMIT_MAX) break;
  }
  return turns;
}

function repeat(model: Model, { requestId, idempotency }: Reserve): Expected | null {
  if (idempotency === null) return null;
  const waiting = model.waiters.find(({ command }) => command.idempotency?.key === idempotency.key);
  const firstId = waiting?.command.requestId ?? model.keys.get(idempotency.key);
  if (firstId === undefined) return null;
  const lease = model.leases.get(firstId);
  const digest = (waiting?.command.idempotency ?? lease?.idempotency)?.digest;
  if (digest !== idempotency.digest) return no("idempotency_conflict", requestId);
  if (idempotency.repeat === "same_lease") return { type: "unchanged", requestId: firstId };
  if (waiting === undefined && (lease?.state === "SETTLED" || lease?.state === "RELEASED")) return null;
  return no("request_in_progress", requestId, { state: lease?.state ?? "PROPOSED" });
}

const waiterOf = (model: Model, requestId: string): ModelWaiter | undefined =>
  model.waiters.find(({ command }) => command.requestId === requestId);

function holdOf(model: Model, command: Reserve): Size {
  const { inputTokens, maxOutputTokens, outputDeclared, perRequestMaxTokens, price } = command;
  if (outputDeclared) return { inputTokens, outputTokens: maxOutputTokens };
  // The largest output, up to the model's own, that no limit would call too large; and at least one.
  let most = maxOutputTokens;
  if (perRequestMaxTokens !== null) most = Math.min(most, perRequestMaxTokens - inputTokens);
  const fits = (outputTokens: number) =>
    model
      .demands(command.scope, price, { inputTokens, outputTokens })
      .every(
        ({ bound, wanted }) =>
          !["tokens", "output_tokens", "nano_usd"].includes(bound.kind.spec.unit) ||
          couldAllow(bound, wanted, command.class),
      );
  let low = 1;
  let high = Math.max(1, most);
  if (fits(high)) low = high;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (fits(middle)) low = middle;
    else high = middle;
  }
  return { inputTokens, outputTokens: low };
}

function letIn(
  model: Model,
  command: Reserve,
  hold: Size,
  demands: readonly Demand[],
  waitedMs: number | null,
): Expected {
  const { policy, nowMs } = model;
  if (policy === null) throw new Error("nobody is let in without a policy");
  const sent = command.dispatch && waitedMs === null;
  const acceptMs = command.dispatch && !sent ? Math.min(ACCEPT_MS, policy.leaseTtlMs) : policy.leaseTtlMs;
  const charges = demands.map(({ bound, wanted }) => ({
    limit: bound.key,
    generation: bound.kind.generation,
    amount: wanted,
  }));
  for (const charge of charges) model.take(charge.limit, charge.generation, charge.amount);
  model.enter({
    id: command.requestId,
    fence: 1,
    state: sent ? "DISPATCHED" : "RESERVED",
    scope: command.scope,
    class: command.class,
    price: command.price,
    ceiling: command.perRequestMaxTokens,
    idempotency: command.idempotency,
    reservedAtMs: nowMs,
    ttlMs: policy.leaseTtlMs,
    hold,
    captured: { inputTokens: 0, outputTokens: 0 },
    charges: charges.map((charge) => ({ ...charge, spent: 0 })),
    expiresAtMs: nowMs + acceptMs,
    lastUsageEventId: null,
    providerRequestId: null,
    settled: null,
  });
  return {
    type: "reserved",
    requestId: command.requestId,
    fence: 1,
    state: sent ? "DISPATCHED" : "RESERVED",
    hold,
    charges,
    waitedMs: waitedMs ?? 0,
    expiresAtMs: nowMs + acceptMs,
    ttlMs: policy.leaseTtlMs,
  };
}

function inOrder(model: Model): ModelWaiter[] {
  return [...model.waiters].toSorted(
    (a, b) => rank(a) - rank(b) || classRank(a) - classRank(b) || a.order - b.order,
  );
}
const rank = ({ command, arrivedAtMs }: ModelWaiter): number =>
  arrivedAtMs + (command.class === "batch" ? BATCH_LAG_MS : 0);
const classRank = ({ command }: ModelWaiter): number => (command.class === "batch" ? 1 : 0);

function note(
  lacking: Map<string, "all" | "batch">,
  short: readonly Demand[],
  requestClass: string,
  atMs: number,
): void {
  for (const { bound, wanted } of short) {
    const floorOnly = belowFloor(bound, wanted, requestClass, atMs);
    if (!floorOnly) lacking.set(bound.key, "all");
    else if (!lacking.has(bound.key)) lacking.set(bound.key, "batch");
  }
}

const heldBack = (
  demands: readonly Demand[],
  requestClass: string,
  lacking: ReadonlyMap<string, "all" | "batch">,
): boolean =>
  demands.some(({ bound, wanted }) => {
    const who = lacking.get(bound.key);
    return wanted > 0 && (who === "all" || (who === "batch" && requestClass === "batch"));
  });

/** The limit for which somebody waits, or goes, before this newcomer. */
function isBehind(model: Model, command: Reserve, demands: readonly Demand[]): string | null {
  const mine = model.nowMs + (command.class === "batch" ? BATCH_LAG_MS : 0);
  const wants = new Set(demands.filter(({ wanted }) => wanted > 0).map(({ bound }) => bound.key));
  const lacking = new Map<string, "all" | "batch">();
  for (const waiter of inOrder(model)) {
    if (rank(waiter) > mine) return null;
    const theirs = model.demands(waiter.command.scope, waiter.command.price, waiter.hold);
    const theirClass = waiter.command.class;
    if (heldBack(theirs, theirClass, lacking)) continue;
    const short = theirs.filter(({ bound, wanted }) => !allows(bound, wanted, theirClass, model.nowMs));
    note(lacking, short, theirClass, model.nowMs);
    const inTheWay =
      short.length === 0
        ? theirs.filter(({ wanted }) => wanted > 0)
        : short.filter(
            ({ bound, wanted }) =>
              command.class === "batch" || !belowFloor(bound, wanted, theirClass, model.nowMs),
          );
    const shared = inTheWay.find(({ bound }) => wants.has(bound.key));
    if (shared !== undefined) return shared.bound.key;
  }
  return null;
}

interface NotNow {
  readonly hold: Size;
  readonly demands: readonly Demand[];
  readonly short: readonly Demand[];
  readonly behind: string | null;
}

/** Whether waiting is worth while is a forecast, and the ledger's to make; all else about it is not. */
function waitOrGo(
  model: Model,
  command: Reserve,
  { hold, demands, short, behind }: NotNow,
  actual: LedgerEvent,
): Expected {
  const { requestId, queueMs } = command;
  const evidence = short.length > 0 ? evidenceOf(model, command, short) : { limit: behind, available: 0 };
  const { queue = { lengthMax: 0, tokensMax: null } } = model.policy ?? {};
  const waiting = model.waiters.reduce((sum, waiter) => sum + tokens(waiter.hold), 0);
  const full =
    model.waiters.length >= queue.lengthMax ||
    (queue.tokensMax !== null && waiting + tokens(hold) > queue.tokensMax);
  const refusedPlainly =
    actual.type === "refused" && actual.code !== "queue_full" && actual.code !== "slo_infeasible";
  if (queueMs === null || (refusedPlainly && mayBeHopeless(demands)))
    return { type: "refused", requestId, hold, ...evidence };
  if (full) return no("queue_full", requestId, { hold });
  if (actual.type === "refused") {
    const late = (actual.retryAfterMs ?? 0) > queueMs;
    return no("slo_infeasible", requestId, late ? { hold } : { retryAfterMs: "later than the deadline" });
  }
  if (actual.type === "queued" && actual.predictedWaitMs > queueMs)
    return { type: "queued", predictedWaitMs: "within the deadline" };
  model.waiters.push({
    command,
    hold,
    arrivedAtMs: model.nowMs,
    deadlineAtMs: model.nowMs + queueMs,
    order: (model.order += 1),
  });
  return { type: "queued", requestId, hold, deadlineAtMs: model.nowMs + queueMs };
}

/** Waiting alone will not help: nothing refills it, or nothing is let in at all. */
const mayBeHopeless = (demands: readonly Demand[]): boolean =>
  demands.some(({ bound }) => {
    const { spec } = bound.kind;
    return (spec.kind === "bucket" && spec.refillPerMinute === 0) || capacity(bound) === 0;
  });

const CODES: Readonly<Record<string, string>> = {
  requests: "requests_exhausted",
  concurrency: "concurrency_exhausted",
  in_flight_tokens: "in_flight_exhausted",
  nano_usd: "spend_exhausted",
};

/** Exact where no gauge is in the way: which limit, how much, and when this very amount fits. */
function evidenceOf(model: Model, command: Reserve, short: readonly Demand[]): object {
  if (short.some(({ bound }) => bound.kind.spec.kind === "gauge")) return {};
  let binding: { demand: Demand; waitMs: number } | null = null;
  for (const demand of short) {
    const waitMs = freesInMs(demand.bound, demand.wanted, command.class, model.nowMs) ?? Infinity;
    if (binding === null || waitMs > binding.waitMs) binding = { demand, waitMs };
  }
  if (binding === null) return {};
  const { bound, wanted } = binding.demand;
  const left =
    bound.kind.spec.kind === "bucket"
      ? (levelAt(bound, model.nowMs) - floor(bound, command.class)) / 60_000
      : free(bound, model.nowMs);
  const code = belowFloor(bound, wanted, command.class, model.nowMs)
    ? "below_batch_floor"
    : (CODES[bound.kind.spec.unit] ?? "tokens_exhausted");
  return {
    ...(command.queueMs === null ? { code } : {}),
    limit: bound.key,
    requested: wanted,
    available: Math.max(0, Math.floor(left)),
    retryAfterMs: Number.isFinite(binding.waitMs) ? binding.waitMs : null,
  };
}
