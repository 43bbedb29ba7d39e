/**
 * Cuts a stream that is one JSON array, or one object, into its elements, without touching a byte. It looks only for
 * where things end, byte by byte: what else stands in them is for the reader of an element.
 */
import { joined } from "./body.ts";

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPENING: ReadonlySet<number> = new Set([0x7b, 0x5b]);
const CLOSING: ReadonlySet<number> = new Set([0x7d, 0x5d]);
const BETWEEN: ReadonlySet<number> = new Set([0x5b, 0x5d, COMMA, 0x20, 0x09, 0x0a, 0x0d]);

export class JsonElements {
  readonly #elementBytesMax: number;
  #pending: Uint8Array[] = [];
  #pendingBytes = 0;
  /** Open brackets of the element; 0 between two of them. */
  #depth = 0;
  #inside = false;
  #inString = false;
  #escaped = false;

  constructor(elementBytesMax: number) {
    this.#elementBytesMax = elementBytesMax;
  }

  /** The elements that this chunk completes. */
  push(chunk: Uint8Array): string[] {
    const elements: string[] = [];
    let start = 0;
    for (let index = 0; index < chunk.length; index += 1) {
      const byte = chunk[index] ?? 0;
      if (!this.#inside) {
        if (BETWEEN.has(byte)) continue;
        this.#inside = true;
        start = index;
      }
      if (!this.#ends(byte)) continue;
      elements.push(this.#take(chunk.subarray(start, index + 1)));
      this.#inside = false;
    }
    if (this.#inside) this.#keep(chunk.slice(start));
    return elements;
  }

  /** What an element had come to when the stream ended or was cut; null between two of them. */
  flush(): string | null {
    this.#inside = false;
    return this.#pendingBytes === 0 ? null : this.#take(new Uint8Array(0));
  }

  /** An element has grown beyond the limit: what came of it so far, to be read as it is. Null while none has. */
  overflow(): string | null {
    return this.#pendingBytes > this.#elementBytesMax ? this.#take(new Uint8Array(0)) : null;
  }

  #ends(byte: number): boolean {
    if (this.#inString) {
      if (this.#escaped) this.#escaped = false;
      else if (byte === BACKSLASH) this.#escaped = true;
      else if (byte === QUOTE) this.#inString = false;
      return false;
    }
    if (byte === QUOTE) this.#inString = true;
    else if (OPENING.has(byte)) this.#depth += 1;
    else if (CLOSING.has(byte)) {
      this.#depth -= 1;
      return this.#depth <= 0;
    }
    return false;
  }

  #keep(bytes: Uint8Array): void {
    this.#pending.push(bytes);
    this.#pendingBytes += bytes.length;
  }

  #take(last: Uint8Array): string {
    this.#keep(last);
    const text = new TextDecoder().decode(joined(this.#pending, this.#pendingBytes));
    this.#pending = [];
    this.#pendingBytes = 0;
    this.#depth = Math.max(0, this.#depth);
    return text;
  }
}
