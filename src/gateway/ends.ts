/** The two ends of a body that may be too large to keep. */
import { joined } from "./body.ts";

export class Ends {
  readonly #bytesEach: number;
  #head = new Uint8Array(0);
  #tail = new Uint8Array(0);

  constructor(bytesEach: number) {
    this.#bytesEach = bytesEach;
  }

  push(chunk: Uint8Array): void {
    const room = this.#bytesEach - this.#head.length;
    if (room > 0) this.#head = copied([this.#head, chunk.subarray(0, room)]);
    const rest = chunk.subarray(Math.max(0, room));
    if (rest.length === 0) return;
    const tail = [this.#tail, rest.subarray(-this.#bytesEach)];
    this.#tail = copied(tail).slice(-this.#bytesEach);
  }

  /** All of a body that is no longer than both ends together. */
  text(): string {
    return new TextDecoder().decode(copied([this.#head, this.#tail]));
  }
}

function copied(pieces: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
  return new Uint8Array(joined(pieces, length));
}
