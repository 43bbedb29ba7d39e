/** The way out: one answer body, written piece by piece, remembering exactly what left. */

import { ClientGone } from "./time.ts";

export class Outlet {
  readonly readable: ReadableStream<Uint8Array>;
  readonly #writer: WritableStreamDefaultWriter<Uint8Array>;
  readonly #tape: Uint8Array[];
  readonly #pieceBytes: number | undefined;
  readonly #gone = new AbortController();
  #held = new Uint8Array(0);

  constructor(tape: Uint8Array[], pieceBytes: number | undefined, client: AbortSignal) {
    const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
    this.readable = readable;
    this.#writer = writable.getWriter();
    this.#tape = tape;
    this.#pieceBytes = pieceBytes;
    // A hang-up shows in either place first: the runtime's signal, or our readable being cancelled.
    const leave = (): void => {
      this.#gone.abort();
      this.#writer.abort(new ClientGone()).catch(() => {});
    };
    if (client.aborted) leave();
    else client.addEventListener("abort", leave, { once: true });
    this.#writer.closed.catch(() => this.#gone.abort());
  }

  /** Aborts as soon as nobody is listening any more. */
  get gone(): AbortSignal {
    return this.#gone.signal;
  }

  /** Whole pieces leave at once; what is left over waits for more, or for `flush`. */
  async send(bytes: Uint8Array): Promise<void> {
    const size = this.#pieceBytes;
    if (size === undefined) return this.#write(bytes);
    const waiting = joined(this.#held, bytes);
    const whole = waiting.length - (waiting.length % size);
    this.#held = waiting.slice(whole);
    for (let at = 0; at < whole; at += size) await this.#write(waiting.slice(at, at + size));
  }

  async flush(): Promise<void> {
    const rest = this.#held;
    this.#held = new Uint8Array(0);
    if (rest.length > 0) await this.#write(rest);
  }

  async close(): Promise<void> {
    await this.flush();
    await this.#writer.close();
  }

  /** The client sees a broken connection, not an end. */
  async drop(): Promise<void> {
    await this.#writer.abort(new Error("simulated connection reset"));
  }

  async #write(piece: Uint8Array): Promise<void> {
    try {
      await this.#writer.write(piece);
    } catch {
      throw new ClientGone();
    }
    this.#tape.push(piece);
  }
}

function joined(first: Uint8Array, second: Uint8Array): Uint8Array<ArrayBuffer> {
  const both = new Uint8Array(first.length + second.length);
  both.set(first);
  both.set(second, first.length);
  return both;
}
