/**
 * A text's digest under a secret: HalfSipHash-1-3 (J.-P. Aumasson and D. J. Bernstein, "SipHash", 2012, in its 32-bit
 * form) with 64 bits of result, over the text's UTF-8. Nobody who does not know the secret can make two texts that
 * share one, so no text can be counted at the price of another. Synchronous, which the platform's own digests are not.
 */

/** UTF-16 units encoded at once. */
const SLICE_UNITS = 2 ** 13;
const UNIT_BYTES_MAX = 3;

export class ContentDigest {
  readonly #key0: number;
  readonly #key1: number;
  readonly #encoder = new TextEncoder();
  readonly #bytes = new Uint8Array(SLICE_UNITS * UNIT_BYTES_MAX + 4);
  readonly #words = new Int32Array(this.#bytes.buffer);
  #v0 = 0;
  #v1 = 0;
  #v2 = 0;
  #v3 = 0;

  constructor(secret: Uint32Array) {
    const [key0 = 0, key1 = 0] = secret;
    this.#key0 = key0 | 0;
    this.#key1 = key1 | 0;
  }

  /** Sixteen hexadecimal digits. */
  of(text: string): string {
    this.#v0 = this.#key0;
    this.#v1 = this.#key1 ^ 0xee;
    this.#v2 = 0x6c796765 ^ this.#key0;
    this.#v3 = 0x74656462 ^ this.#key1;
    let length = 0;
    let carried = 0;
    for (let from = 0; from < text.length; ) {
      let to = Math.min(from + SLICE_UNITS, text.length);
      // Never between two surrogates of one character.
      if (to < text.length && (text.charCodeAt(to - 1) & 0xfc00) === 0xd800) to -= 1;
      const slice = from === 0 && to === text.length ? text : text.slice(from, to);
      const { written } = this.#encoder.encodeInto(slice, this.#bytes.subarray(carried));
      length += written;
      carried = this.#absorb(carried + written);
      from = to;
    }
    this.#bytes.fill(0, carried, 4);
    this.#round((this.#words[0] as number) | (length << 24));
    return this.#finished();
  }

  /** Takes whole words; what is left, less than one, moves to the front. */
  #absorb(filled: number): number {
    const words = filled >>> 2;
    const wordsView = this.#words;
    for (let index = 0; index < words; index++) this.#round(wordsView[index] as number);
    this.#bytes.copyWithin(0, words << 2, filled);
    return filled & 3;
  }

  #round(word: number): void {
    this.#v3 ^= word;
    this.#mix();
    this.#v0 ^= word;
  }

  #mix(): void {
    let v0 = this.#v0;
    let v1 = this.#v1;
    let v2 = this.#v2;
    let v3 = this.#v3;
    v0 = (v0 + v1) | 0;
    v1 = ((v1 << 5) | (v1 >>> 27)) ^ v0;
    v0 = (v0 << 16) | (v0 >>> 16);
    v2 = (v2 + v3) | 0;
    v3 = ((v3 << 8) | (v3 >>> 24)) ^ v2;
    v0 = (v0 + v3) | 0;
    v3 = ((v3 << 7) | (v3 >>> 25)) ^ v0;
    v2 = (v2 + v1) | 0;
    v1 = ((v1 << 13) | (v1 >>> 19)) ^ v2;
    v2 = (v2 << 16) | (v2 >>> 16);
    this.#v0 = v0;
    this.#v1 = v1;
    this.#v2 = v2;
    this.#v3 = v3;
  }

  #finished(): string {
    this.#v2 ^= 0xee;
    this.#mix();
    this.#mix();
    this.#mix();
    const low = this.#v1 ^ this.#v3;
    this.#v1 ^= 0xdd;
    this.#mix();
    this.#mix();
    this.#mix();
    return hex(low) + hex(this.#v1 ^ this.#v3);
  }
}

const hex = (word: number): string => (word >>> 0).toString(16).padStart(8, "0");
