/** Who is on the line while their request waits in the queue: how a grant finds its caller. */
import type { LedgerEvent, Refused, Reserved } from "../src/ledger/types.ts";

export class WaitingRoom {
  readonly #calls = new Map<string, (event: LedgerEvent) => void>();
  /** What came before anyone asked for it. */
  readonly #kept = new Map<string, LedgerEvent>();
  readonly #expected = new Set<string>();

  /** From its queueing on, what becomes of this request is kept until it is heard. */
  expect(requestId: string): void {
    this.#expected.add(requestId);
  }

  tell(event: Reserved | Refused): void {
    const id = event.requestId;
    if (id === null || !this.#expected.has(id)) return;
    const call = this.#calls.get(id);
    if (call === undefined) {
      this.#kept.set(id, event);
      return;
    }
    this.forget(id);
    call(event);
  }

  /** Never resolves for one that was sent away by `forget`. */
  outcome(requestId: string): Promise<LedgerEvent> {
    const kept = this.#kept.get(requestId);
    if (kept !== undefined) {
      this.forget(requestId);
      return Promise.resolve(kept);
    }
    return new Promise((resolve) => this.#calls.set(requestId, resolve));
  }

  forget(requestId: string): void {
    this.#calls.delete(requestId);
    this.#kept.delete(requestId);
    this.#expected.delete(requestId);
  }
}
