/** What a run has seen, and what it must have seen to have proven anything. */
import { capacityOf, unitsOf } from "../../../src/ledger/limits.ts";
import type { LedgerState } from "../../../src/ledger/state.ts";
import type { LedgerEvent } from "../../../src/ledger/types.ts";
import { limitNameOf } from "../../../src/policy/limit-schema.ts";

export type Seen = Record<string, number>;

export const MUST_BE_SEEN: readonly string[] = [
  ...[
    "reserved",
    "queued",
    "left",
    "dispatched",
    "ran",
    "captured",
    "topped_up",
    "settled",
    "corrected",
    "released",
    "expired",
    "taken_over",
    "forestalled",
    "policy_set",
    "window_turned",
    "unchanged",
    "refused",
  ].map((type) => `event ${type}`),
  ...[
    "request_too_large",
    "tokens_exhausted",
    "requests_exhausted",
    "concurrency_exhausted",
    "in_flight_exhausted",
    "spend_exhausted",
    "below_batch_floor",
    "queue_full",
    "slo_infeasible",
    "deadline_exceeded",
    "idempotency_conflict",
    "request_in_progress",
    "need_policy",
    "unknown_reservation",
    "invalid_state",
    "stale_fence",
    "already_settled",
  ].map((code) => `refused ${code}`),
  ...[
    "none>RESERVED",
    "none>DISPATCHED",
    "none>RELEASED",
    "PROPOSED>RESERVED",
    "RESERVED>DISPATCHED",
    "RESERVED>RUNNING",
    "RESERVED>RELEASED",
    "DISPATCHED>RUNNING",
    "DISPATCHED>PARTIALLY_SETTLED",
    "DISPATCHED>SETTLED",
    "DISPATCHED>RELEASED",
    "DISPATCHED>RECONCILING",
    "RUNNING>PARTIALLY_SETTLED",
    "RUNNING>SETTLED",
    "RUNNING>RELEASED",
    "RUNNING>RECONCILING",
    "PARTIALLY_SETTLED>SETTLED",
    "PARTIALLY_SETTLED>RECONCILING",
    "RECONCILING>SETTLED",
    "RECONCILING>RELEASED",
    "RELEASED>SETTLED",
    "SETTLED>SETTLED",
  ].map((edge) => `edge ${edge}`),
  ...["bucket", "gauge", "window", "rolling"].map((kind) => `binds ${kind}`),
  ...["exact", "under_estimate", "charge_hold", "charge_captured"].map((basis) => `basis ${basis}`),
  "debt",
  "refund lost",
  "alert",
  "overrun while running",
  "corrected up",
  "corrected down",
  "auto gauge",
  "crash idle",
  "crash writing, arrived",
  "crash writing, lost",
  "crash with waiters",
  "riders lost",
  "answer lost",
  "call lost",
  "call twice",
  "clock back",
  "clock ahead",
  "holder died",
  "session ended",
];

export function note(seen: Seen, what: string): void {
  seen[what] = (seen[what] ?? 0) + 1;
}

export function noteEvent(seen: Seen, event: LedgerEvent, from: string, state: LedgerState): void {
  note(seen, `event ${event.type}`);
  if (event.type === "refused") {
    note(seen, `refused ${event.code}`);
    const spec = state.definitions.get(limitNameOf(event.limit ?? ""))?.spec;
    if (spec !== undefined) note(seen, `binds ${spec.kind}`);
    return;
  }
  if ("requestId" in event && event.requestId !== null && event.type !== "unchanged") {
    const to = state.leases.get(event.requestId)?.state;
    if (to !== undefined && (from !== to || event.type === "corrected")) note(seen, `edge ${from}>${to}`);
  }
  if (event.type === "settled") note(seen, `basis ${event.basis}`);
  if (event.type === "captured" && event.overrunTokens > 0) note(seen, "overrun while running");
  if (event.type === "corrected" && event.deltaTokens !== 0)
    note(seen, event.deltaTokens > 0 ? "corrected up" : "corrected down");
  if ("moves" in event) {
    for (const { forfeitedLevel, alert } of event.moves) {
      if (forfeitedLevel > 0) note(seen, "refund lost");
      if (alert !== null) note(seen, "alert");
    }
  }
}

export function noteState(seen: Seen, state: LedgerState): void {
  for (const limit of state.limits.values()) {
    if (capacityOf(limit) !== null && unitsOf(limit, state.nowMs) < 0) note(seen, "debt");
    if (limit.autoMax !== null) note(seen, "auto gauge");
  }
}
