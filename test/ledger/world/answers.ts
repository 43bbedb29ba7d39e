/** What answers have in common: refusals with their evidence, repeats, and where the limits stand. */
import type { RefusalCode, Refused, Standing, Unchanged } from "../../../src/ledger/types.ts";
import type { Scope } from "../../../src/policy/limit-schema.ts";
import { type Demand, isOpen, type Model, tokens } from "./model.ts";
import {
  type Bound,
  belowFloor,
  capacity,
  floor,
  free,
  freesInMs,
  lacking,
  levelAt,
  mostEver,
  type Size,
} from "./model-limits.ts";

const RETRY_LEAST_MS = 1_000;

export type Evidence = Pick<Refused, "limit" | "requested" | "available" | "retryAfterMs">;

export function no(model: Model, code: RefusalCode, requestId: string, more: Partial<Refused> = {}): Refused {
  const nothing = {
    limit: null,
    requested: null,
    available: null,
    retryAfterMs: null,
    state: null,
    hold: null,
  };
  return {
    type: "refused",
    atMs: model.nowMs,
    code,
    requestId,
    ...nothing,
    standings: [],
    waitedMs: 0,
    ...more,
  };
}

/** The answer is where it stands. */
export function same(model: Model, requestId: string | null): Unchanged {
  const lease = requestId === null ? undefined : model.leases.get(requestId);
  const waiter = model.waiters.find(({ command }) => command.requestId === requestId);
  return {
    type: "unchanged",
    atMs: model.nowMs,
    requestId,
    fence: lease?.fence ?? null,
    state: lease?.state ?? (waiter === undefined ? null : "PROPOSED"),
    hold: lease?.hold ?? waiter?.hold ?? null,
  };
}

/** What can never be had: by the route's ceiling first, then by each limit. */
export function tooLarge(
  { scope, class: requestClass }: { readonly scope: Scope; readonly class: string },
  ceiling: number | null,
  hold: Size,
  demands: readonly Demand[],
): Evidence | null {
  if (ceiling !== null && tokens(hold) > ceiling)
    return { limit: `route:${scope.route}`, requested: tokens(hold), available: ceiling, retryAfterMs: null };
  const large = demands.find(({ bound, wanted }) => wanted > mostEver(bound, requestClass));
  if (large === undefined) return null;
  const { bound, wanted } = large;
  const available = Math.floor(mostEver(bound, requestClass));
  return { limit: bound.key, requested: wanted, available, retryAfterMs: null };
}

export const shortOf = (model: Model, demands: readonly Demand[], requestClass: string): Demand[] =>
  demands.filter(({ bound, wanted }) => lacking(bound, wanted, requestClass, model.nowMs) > 0);

const CODES: Readonly<Partial<Record<string, RefusalCode>>> = {
  requests: "requests_exhausted",
  concurrency: "concurrency_exhausted",
  in_flight_tokens: "in_flight_exhausted",
  nano_usd: "spend_exhausted",
};

export const codeOf = ({ bound, wanted }: Demand, requestClass: string, atMs: number): RefusalCode =>
  belowFloor(bound, wanted, requestClass, atMs) ? "below_batch_floor" : exhausted(bound);

export const exhausted = ({ kind }: Bound): RefusalCode => CODES[kind.spec.unit] ?? "tokens_exhausted";

/** Which limit bound (of several the one that frees last), how much was free of it, and when this very amount fits. */
export function evidenceOf(
  model: Model,
  requestClass: string,
  short: readonly Demand[],
): Evidence & { readonly code: RefusalCode } {
  const waits = short.map((demand) => ({ demand, waitMs: waitOf(model, requestClass, demand) }));
  const lastMs = Math.max(...waits.map(({ waitMs }) => waitMs));
  const { demand } = waits.find(({ waitMs }) => waitMs === lastMs) ?? { demand: undefined };
  if (demand === undefined) throw new Error("nothing is short");
  const { bound, wanted } = demand;
  const isBucket = bound.kind.spec.kind === "bucket";
  const left = isBucket
    ? (levelAt(bound, model.nowMs) - floor(bound, requestClass)) / 60_000
    : free(bound, model.nowMs);
  return {
    code: codeOf(demand, requestClass, model.nowMs),
    limit: bound.key,
    requested: wanted,
    available: Math.max(0, Math.floor(left)),
    retryAfterMs: lastMs === Infinity ? null : lastMs,
  };
}

function waitOf(model: Model, requestClass: string, { bound, wanted }: Demand): number {
  const frees = freesInMs(bound, lacking(bound, wanted, requestClass, model.nowMs), model.nowMs);
  if (frees !== null) return frees;
  if (capacity(bound) === 0) return Infinity;
  // The mean time between two that leave.
  const inside = [...model.leases.values()].filter(isOpen).length;
  return Math.max(RETRY_LEAST_MS, Math.ceil(model.means.stayMs / Math.max(1, inside)));
}

/** A gauge that is open yet stands nowhere. */
export const standings = (model: Model, demands: readonly Demand[], met: boolean): Standing[] =>
  demands
    .filter(({ bound }) => capacity(bound) !== null)
    .map(({ bound, wanted }) => ({ limit: bound.key, level: free(bound, model.nowMs) - (met ? wanted : 0) }));
