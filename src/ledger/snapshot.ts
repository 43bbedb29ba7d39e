/** The state as plain data and back: what a checkpoint holds. `restore(snapshot(state))` is `state`. */
import type { LedgerPolicy } from "../policy/resolve.ts";
import type { LimitState } from "./limits.ts";
import { emptyState, type Lease, type LedgerState, queueOf } from "./state.ts";

export type LeaseRecord = Omit<Lease, "next" | "previous">;

export interface Snapshot {
  readonly nowMs: number;
  readonly policy: LedgerPolicy | null;
  readonly generation: number;
  readonly meanStayMs: number;
  readonly inFlightTokens: number;
  readonly reconcilingTokens: number;
  readonly limits: readonly LimitState[];
  /** Queue by queue, each in its order. */
  readonly leases: readonly LeaseRecord[];
}

export function snapshot(state: LedgerState): Snapshot {
  const leases: LeaseRecord[] = [];
  for (const queue of [...state.open.values(), state.reconciling, state.closed]) {
    for (const { next: _next, previous: _previous, ...record } of queue) {
      leases.push({ ...record, charges: record.charges.map((charge) => ({ ...charge })) });
    }
  }
  const { nowMs, policy, generation, meanStayMs, inFlightTokens, reconcilingTokens } = state;
  const limits = [...state.limits.values()].map((limit) => ({ ...limit }));
  return { nowMs, policy, generation, meanStayMs, inFlightTokens, reconcilingTokens, limits, leases };
}

export function restore(from: Snapshot): LedgerState {
  const state = emptyState();
  for (const limit of from.limits) state.limits.set(limit.name, { ...limit });
  for (const record of from.leases) {
    const lease: Lease = {
      ...record,
      charges: record.charges.map((charge) => ({ ...charge })),
      next: null,
      previous: null,
    };
    state.leases.set(lease.requestId, lease);
    queueOf(state, lease).push(lease);
  }
  const { nowMs, policy, generation, meanStayMs, inFlightTokens, reconcilingTokens } = from;
  return Object.assign(state, { nowMs, policy, generation, meanStayMs, inFlightTokens, reconcilingTokens });
}
