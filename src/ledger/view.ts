/** What may be read of a ledger: never the live state, always a copy made for the reader. */
import { type Limit, scopeOf } from "../policy/limit-schema.ts";
import { capacityOf, unitsOf } from "./limits.ts";
import { isClosed, type LedgerState, lengthOf, openCount, tokensOf } from "./state.ts";
import type { LeaseState } from "./types.ts";

/** `level` is what the next request is judged against; all amounts in the limit's unit. */
export interface LimitRow {
  readonly name: string;
  readonly scope: Readonly<Record<string, string>>;
  readonly unit: Limit["unit"];
  readonly kind: Limit["kind"];
  /** Null for a gauge that derives itself and knows too little yet: it is open. */
  readonly capacity: number | null;
  readonly level: number | null;
  readonly held: number;
  readonly settledTotal: number;
  /** What later corrections gave back of that. */
  readonly creditedTotal: number;
  readonly debt: number;
  readonly refillPerMinute: number;
  /** When a window turns. */
  readonly resetsAtMs: number | null;
}

export interface Balance {
  readonly tenant: string;
  readonly atMs: number;
  readonly limits: readonly LimitRow[];
  readonly inFlight: { readonly requests: number; readonly tokens: number };
  readonly queue: { readonly length: number; readonly tokens: number };
  readonly reconciling: { readonly count: number; readonly tokens: number };
  /** Of each model whose bills have taught something: billed to counted input, over so many of them. */
  readonly drift: readonly { readonly model: string; readonly ratio: number; readonly samples: number }[];
}

export function balanceOf(state: LedgerState, tenant: string): Balance {
  const atMs = state.nowMs;
  const limits: LimitRow[] = [];
  for (const limit of instancesOf(state)) {
    const { spec, span } = limit.definition;
    const capacity = capacityOf(limit);
    const level = capacity === null ? null : unitsOf(limit, atMs);
    limits.push({
      name: spec.name,
      scope: { tenant, ...scopeOf(limit.key) },
      unit: spec.unit,
      kind: spec.kind,
      capacity,
      level,
      held: limit.held,
      settledTotal: limit.settledTotal,
      creditedTotal: limit.creditedTotal,
      debt: Math.max(0, -(level ?? 0)),
      refillPerMinute: spec.kind === "bucket" ? spec.refillPerMinute : 0,
      resetsAtMs: span?.endsAtMs ?? null,
    });
  }
  return {
    tenant,
    atMs,
    limits,
    inFlight: { requests: openCount(state), tokens: state.inFlightTokens },
    queue: { length: state.queue.byId.size, tokens: state.queue.tokens },
    reconciling: { count: lengthOf(state.reconciling), tokens: state.reconcilingTokens },
    drift: [...state.drifts].map(([model, { samples, countedTokens, billedTokens }]) => ({
      model,
      ratio: billedTokens / countedTokens,
      samples,
    })),
  };
}

/** In the policy's order; instances of one limit by key. */
function instancesOf(state: LedgerState) {
  const order = [...state.definitions.keys()];
  const place = (name: string) => order.indexOf(name);
  return [...state.limits.values()].toSorted(
    (a, b) => place(a.definition.spec.name) - place(b.definition.spec.name) || (a.key < b.key ? -1 : 1),
  );
}

export interface Reservation {
  readonly id: string;
  readonly fence: number;
  readonly state: LeaseState;
  readonly heldTokens: number;
  readonly capturedTokens: number;
  readonly settledTokens: number;
  readonly expiresAtMs: number;
}

/** Null for an id that the ledger does not (or no longer) know. */
export function reservationOf(state: LedgerState, requestId: string): Reservation | null {
  const lease = state.leases.get(requestId);
  if (lease === undefined || lease.fence === 0) return null;
  return {
    id: lease.requestId,
    fence: lease.fence,
    state: lease.state,
    heldTokens: isClosed(lease.state) ? 0 : tokensOf(lease.hold),
    capturedTokens: tokensOf(lease.captured),
    settledTokens: lease.settlement === null ? 0 : tokensOf(lease.settlement.usage),
    expiresAtMs: lease.expiresAtMs,
  };
}

/** Whether the lease is a caller's own, under this key; the gateway answers for those that it proxies. */
export function isHeldBy(state: LedgerState, requestId: string, keyId: string): boolean {
  const lease = state.leases.get(requestId);
  return lease !== undefined && !lease.proxied && lease.scope.key === keyId;
}
