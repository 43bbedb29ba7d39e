/**
 * The test that everything which takes a hold must pass: a newcomer, a waiter, a top-up. All limits are
 * asked in the policy's order, and none is moved.
 */
import { type Limit, limitKey, type Scope } from "../policy/limit-schema.ts";
import type { Price } from "../policy/resolve.ts";
import type { RequestClass } from "../policy/schema.ts";
import { amountOf } from "./amounts.ts";
import { INSTANCES_MAX, RETRY_AFTER_MIN_MS } from "./bounds.ts";
import {
  capacityOf,
  floorOf,
  freesInMs,
  type LimitState,
  levelOf,
  missing,
  mostOf,
  openLimit,
  scaleOf,
  unitsOf,
} from "./limits.ts";
import { type LedgerState, openCount } from "./state.ts";
import type { Charge, RefusalCode, Refused, Size, Standing } from "./types.ts";

export interface Asking {
  readonly scope: Scope;
  readonly class: RequestClass;
  readonly price: Price | null;
}

/** One limit that applies, and what is asked of it. */
export interface Demand {
  readonly limit: LimitState;
  readonly amount: number;
}

/** The instances that apply; one that no lease has touched yet is as good as just opened. */
export function instancesFor(state: LedgerState, scope: Scope, atMs: number): LimitState[] {
  const instances: LimitState[] = [];
  for (const definition of state.definitions.values()) {
    const key = limitKey(definition.spec, scope);
    instances.push(state.limits.get(key) ?? openLimit(key, definition, atMs));
  }
  return instances;
}

export function demandsOf(
  state: LedgerState,
  { scope, price }: Asking,
  size: Size,
  atMs: number,
  amount: (limit: Limit, size: Size, price: Price | null) => number = amountOf,
): Demand[] {
  return instancesFor(state, scope, atMs).map((limit) => ({
    limit,
    amount: amount(limit.definition.spec, size, price),
  }));
}

/** The first that could not be met by an empty ledger: waiting for it would never end. */
export function firstTooLarge(demands: readonly Demand[], requestClass: RequestClass): Demand | null {
  return demands.find(({ limit, amount }) => amount > mostOf(limit, requestClass)) ?? null;
}

export interface Shortage extends Demand {
  /** In the limit's own parts. */
  readonly missingLevel: number;
  /** Null where only the calls inside can free it; Infinity where nothing will. */
  readonly freesInMs: number | null;
}

export function shortages(
  state: LedgerState,
  demands: readonly Demand[],
  requestClass: RequestClass,
  atMs: number,
): Shortage[] {
  const short: Shortage[] = [];
  for (const { limit, amount } of demands) {
    const missingLevel = missing(limit, amount, requestClass, atMs);
    if (missingLevel > 0) {
      short.push({ limit, amount, missingLevel, freesInMs: freesInMs(limit, missingLevel, atMs) });
    } else if (state.limits.size >= INSTANCES_MAX && !state.limits.has(limit.key)) {
      short.push({ limit, amount, missingLevel: 0, freesInMs: RETRY_AFTER_MIN_MS });
    }
  }
  return short;
}

/** Of several, the one that frees last binds. */
export function bindingOf(state: LedgerState, short: readonly Shortage[]): Shortage | null {
  let binding: Shortage | null = null;
  for (const shortage of short) {
    if (binding === null || waitOf(state, shortage) > waitOf(state, binding)) binding = shortage;
  }
  return binding;
}

/** Exact where it can be; for a gauge the mean time between two settlements. */
export function waitOf(state: LedgerState, shortage: Shortage): number {
  if (shortage.freesInMs !== null) return shortage.freesInMs;
  if (capacityOf(shortage.limit) === 0) return Infinity;
  return Math.max(RETRY_AFTER_MIN_MS, Math.ceil(state.means.stayMs / Math.max(1, openCount(state))));
}

/** What a refusal says of the limit that bound. */
export function evidenceOf(
  state: LedgerState,
  shortage: Shortage,
  requestClass: RequestClass,
  atMs: number,
): Pick<Refused, "limit" | "requested" | "available" | "retryAfterMs"> {
  const { limit, amount } = shortage;
  const waitMs = waitOf(state, shortage);
  const free = (levelOf(limit, atMs) - floorOf(limit, requestClass)) / scaleOf(limit);
  return {
    limit: limit.key,
    requested: amount,
    available: Math.max(0, Math.floor(free)),
    retryAfterMs: Number.isFinite(waitMs) ? waitMs : null,
  };
}

export function codeOf({ limit, amount }: Demand, requestClass: RequestClass, atMs: number): RefusalCode {
  const { spec } = limit.definition;
  const aboveZero = levelOf(limit, atMs) >= amount * scaleOf(limit);
  if (requestClass === "batch" && spec.kind === "bucket" && spec.batchFloor > 0 && aboveZero)
    return "below_batch_floor";
  return exhausted(spec.unit);
}

export function exhausted(unit: Limit["unit"]): RefusalCode {
  switch (unit) {
    case "requests":
      return "requests_exhausted";
    case "concurrency":
      return "concurrency_exhausted";
    case "in_flight_tokens":
      return "in_flight_exhausted";
    case "nano_usd":
      return "spend_exhausted";
    default:
      return "tokens_exhausted";
  }
}

export function chargesOf(demands: readonly Demand[]): Charge[] {
  return demands.map(({ limit, amount }) => ({
    limit: limit.key,
    generation: limit.definition.generation,
    amount,
  }));
}

/** Where the limits stand, once these demands are met. A gauge that knows nothing yet stands nowhere. */
export function standingsOf(demands: readonly Demand[], met: boolean, atMs: number): Standing[] {
  return demands
    .filter(({ limit }) => capacityOf(limit) !== null)
    .map(({ limit, amount }) => ({ limit: limit.key, level: unitsOf(limit, atMs) - (met ? amount : 0) }));
}
