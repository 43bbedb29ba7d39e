/** Which frozen leases are to be asked after, and when: soon, and then ever more rarely, until somebody knows. */
import type { Lease, LedgerState } from "../src/ledger/state.ts";
import type { LedgerEvent } from "../src/ledger/types.ts";

/** Before each attempt, in ms: an answer that was cut may take a while to be known whole. */
const WAITS_MS = [1_000, 30_000, 300_000] as const;

/** Asked in one alarm; the others have their turn in the next. */
const ASKED_AT_ONCE = 6;

export class Reconciler {
  readonly #asks = new Map<string, { readonly attempt: number; readonly atMs: number }>();

  /** In memory alone: another life of the object asks from the beginning. */
  begin(state: LedgerState, nowMs: number): void {
    for (const line of state.reconciling.values()) for (const lease of line) this.#consider(lease, nowMs);
  }

  note(events: readonly LedgerEvent[], state: LedgerState, nowMs: number): void {
    for (const event of events) {
      if (event.type !== "expired" || event.to !== "RECONCILING") continue;
      const lease = state.leases.get(event.requestId);
      if (lease !== undefined) this.#consider(lease, nowMs);
    }
  }

  nextAtMs(): number | null {
    let next: number | null = null;
    for (const { atMs } of this.#asks.values()) if (next === null || atMs < next) next = atMs;
    return next;
  }

  /** Each is asked once, and comes again later; those whose outcome is known are dropped. */
  due(state: LedgerState, nowMs: number): Lease[] {
    const due: Lease[] = [];
    for (const [requestId, { attempt, atMs }] of this.#asks) {
      if (atMs > nowMs) continue;
      if (due.length === ASKED_AT_ONCE) break;
      this.#asks.delete(requestId);
      const lease = state.leases.get(requestId);
      if (lease?.state !== "RECONCILING") continue;
      due.push(lease);
      const waitMs = WAITS_MS[attempt + 1];
      if (waitMs !== undefined) this.#asks.set(requestId, { attempt: attempt + 1, atMs: nowMs + waitMs });
    }
    return due;
  }

  #consider({ requestId, providerRequestId }: Lease, nowMs: number): void {
    if (providerRequestId !== null) this.#asks.set(requestId, { attempt: 0, atMs: nowMs + WAITS_MS[0] });
  }
}
