/** Keeps a lease alive while its worker lives, and tells the ledger what has been produced so far. */
import type { Reserved } from "../ledger/types.ts";
import { CAPTURE_EVERY_TOKENS, CAPTURE_INTERVAL_MS, RENEWALS_PER_TTL } from "./bounds.ts";
import type { LedgerLine } from "./ledger-line.ts";
import type { Meter } from "./meter.ts";

const NOTHING_USED = { inputTokens: 0, outputTokens: 0 };

export class Heartbeat {
  readonly #lease: Reserved;
  readonly #line: LedgerLine;
  readonly #meter: Meter;
  readonly #timer: ReturnType<typeof setInterval>;
  #captures = 0;
  #capturedTokens = 0;

  constructor(lease: Reserved, line: LedgerLine, meter: Meter) {
    this.#lease = lease;
    this.#line = line;
    this.#meter = meter;
    const everyMs = Math.min(CAPTURE_INTERVAL_MS, lease.ttlMs / RENEWALS_PER_TTL);
    this.#timer = setInterval(() => this.#capture(), everyMs);
  }

  /** Between two beats, when much has been produced. */
  progressed(): void {
    if (this.#meter.soFar.outputTokens - this.#capturedTokens >= CAPTURE_EVERY_TOKENS) this.#capture();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  #capture(): void {
    const { outputTokens, inputTokens } = this.#meter.soFar;
    this.#captures += 1;
    this.#capturedTokens = outputTokens;
    const { requestId, fence } = this.#lease;
    // Before any output nothing is known to be used; the beat then only renews.
    const known = this.#meter.anyOutput || this.#meter.reported !== null;
    const size = known ? { inputTokens, outputTokens } : NOTHING_USED;
    // Never rejects; a beat that is lost is made good by the next.
    void this.#line.send({ type: "capture", requestId, fence, usageEventId: `c${this.#captures}`, size });
  }
}
