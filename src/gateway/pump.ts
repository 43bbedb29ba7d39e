/** Carries the provider's body to the caller, reading on the way, until one of the two is done. */
import { ProviderTimeout } from "./dispatch.ts";
import type { SecretMask } from "./mask.ts";
import type { Tap } from "./tap.ts";

export interface Pump {
  /** The provider's; null for an answer without one. */
  readonly body: ReadableStream<Uint8Array> | null;
  /** The caller's. */
  readonly writable: WritableStream<Uint8Array>;
  readonly tap: Tap;
  readonly mask: SecretMask;
  /** All output has been generated, and only its price is still to come. */
  readonly finished: () => boolean;
  /** Ends the provider's call. */
  readonly abort: AbortController;
  /** How long the provider may be silent; a caller who reads slowly is not its silence. */
  readonly idleTimeoutMs: number;
  readonly onProgress: () => void;
  readonly onCallerGone: () => void;
}

/** "complete" only if the provider's body came to its own end. Either way both sides are closed. */
export async function pump({
  body,
  writable,
  tap,
  mask,
  finished,
  abort,
  idleTimeoutMs,
  onProgress,
  onCallerGone,
}: Pump): Promise<"complete" | "cut"> {
  const writer = writable.getWriter();
  const reader = (body ?? nothing()).getReader();
  const silence = new Silence(idleTimeoutMs, () => abort.abort(new ProviderTimeout()));
  let callerGone = false;
  const forward = async (pieces: readonly Uint8Array[], read: () => void) => {
    const writes = callerGone
      ? []
      : pieces.filter(({ length }) => length > 0).map((piece) => writer.write(piece));
    read();
    try {
      await Promise.all(writes);
    } catch (error) {
      onCallerGone();
      // Nothing is saved by breaking off what was generated whole, and reading on tells its price.
      if (!finished()) throw error;
      callerGone = true;
    }
  };
  try {
    for (;;) {
      silence.begins();
      const { done, value } = await reader.read();
      silence.ends();
      if (done) break;
      const { forward: pieces, read } = tap.push(value);
      await forward(
        pieces.map((piece) => mask.push(piece)),
        read,
      );
      onProgress();
    }
    const last = tap.end().map((piece) => mask.push(piece));
    await forward([...last, mask.flush()], () => {});
    if (!callerGone) await writer.close().catch(() => {});
    return "complete";
  } catch (error) {
    // Either side may have broken off. Both are told, so that neither keeps working for the other.
    tap.cut();
    abort.abort(error);
    await Promise.allSettled([reader.cancel(error), writer.abort(error)]);
    return "cut";
  } finally {
    silence.stop();
  }
}

const nothing = () => new ReadableStream<Uint8Array>({ start: (controller) => controller.close() });

/** One timer for a whole body: it looks again when the time would be up, instead of being set anew for each read. */
class Silence {
  readonly #timeoutMs: number;
  readonly #onTimeout: () => void;
  #timer: ReturnType<typeof setTimeout>;
  #sinceMs: number | null = null;

  constructor(timeoutMs: number, onTimeout: () => void) {
    this.#timeoutMs = timeoutMs;
    this.#onTimeout = onTimeout;
    this.#timer = setTimeout(() => this.#look(), timeoutMs);
  }

  begins(): void {
    this.#sinceMs = Date.now();
  }

  ends(): void {
    this.#sinceMs = null;
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  #look(): void {
    const silentMs = this.#sinceMs === null ? 0 : Date.now() - this.#sinceMs;
    if (silentMs >= this.#timeoutMs) this.#onTimeout();
    else this.#timer = setTimeout(() => this.#look(), this.#timeoutMs - silentMs);
  }
}
