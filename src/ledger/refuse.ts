/** How the two answers that move nothing are made: a refusal with all its evidence, and a repeat. */
import type { Lease, LedgerState } from "./state.ts";
import type { RefusalCode, Refused, Unchanged } from "./types.ts";

type Evidence = Partial<Omit<Refused, "type" | "code" | "requestId" | "atMs">>;

export function refusal(
  code: RefusalCode,
  requestId: string | null,
  atMs: number,
  evidence: Evidence = {},
): Refused {
  return {
    type: "refused",
    atMs,
    code,
    requestId,
    limit: null,
    requested: null,
    available: null,
    retryAfterMs: null,
    state: null,
    hold: null,
    standings: [],
    waitedMs: 0,
    ...evidence,
  };
}

export const invalidState = (lease: Lease, atMs: number): Refused =>
  refusal("invalid_state", lease.requestId, atMs, { state: lease.state });

/** The command was carried out before, or has nothing to do. */
export function unchanged(state: LedgerState, requestId: string | null, atMs: number): Unchanged {
  const lease = requestId === null ? undefined : state.leases.get(requestId);
  const waiter = requestId === null ? undefined : state.queue.byId.get(requestId);
  return {
    type: "unchanged",
    atMs,
    requestId,
    fence: lease?.fence ?? null,
    state: lease?.state ?? (waiter === undefined ? null : "PROPOSED"),
    hold: lease?.hold ?? waiter?.hold ?? null,
  };
}
