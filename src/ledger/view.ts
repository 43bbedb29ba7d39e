/** What may be read of a ledger: never the live state, always a copy made for the reader. */
import type { Limit } from "../policy/schema.ts";
import { LEVEL_PER_UNIT } from "./bounds.ts";
import { levelAt } from "./limits.ts";
import { type LedgerState, openCount, tokensOf } from "./state.ts";
import type { LeaseState } from "./types.ts";

/** `level` is what the next request is judged against; all amounts in the limit's unit. */
export interface LimitRow {
  readonly name: string;
  readonly scope: Readonly<Record<string, string>>;
  readonly unit: Limit["unit"];
  readonly kind: Limit["kind"];
  readonly capacity: number;
  readonly level: number;
  readonly held: number;
  readonly settledTotal: number;
  readonly debt: number;
  readonly refillPerMinute: number;
}

export interface Balance {
  readonly tenant: string;
  readonly atMs: number;
  readonly limits: readonly LimitRow[];
  readonly inFlight: { readonly requests: number; readonly tokens: number };
  readonly queue: { readonly length: number; readonly tokens: number };
  readonly reconciling: { readonly count: number; readonly tokens: number };
}

export function balanceOf(state: LedgerState, tenant: string): Balance {
  const atMs = state.nowMs;
  return {
    tenant,
    atMs,
    limits: [...state.limits.values()].map((limit) => {
      const level = levelAt(limit, atMs) / LEVEL_PER_UNIT;
      const { name, unit, kind, capacity, held, settledTotal, refillPerMinute } = limit;
      const debt = Math.max(0, -level);
      return {
        name,
        scope: { tenant },
        unit,
        kind,
        capacity,
        level,
        held,
        settledTotal,
        debt,
        refillPerMinute,
      };
    }),
    inFlight: { requests: openCount(state), tokens: state.inFlightTokens },
    queue: { length: 0, tokens: 0 },
    reconciling: { count: state.reconciling.length, tokens: state.reconcilingTokens },
  };
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
  const closed = lease.state === "SETTLED" || lease.state === "RELEASED";
  return {
    id: lease.requestId,
    fence: lease.fence,
    state: lease.state,
    heldTokens: closed ? 0 : tokensOf(lease.hold),
    capturedTokens: tokensOf(lease.captured),
    settledTokens: lease.settlement === null ? 0 : tokensOf(lease.settlement.usage),
    expiresAtMs: lease.expiresAtMs,
  };
}
