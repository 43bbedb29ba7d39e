/** Reads single bytes out of base64, so that a header is read without decoding the megabytes behind it. */

const SEXTETS = new Int8Array(128).fill(-1);
for (const [value, unit] of [..."ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"].entries())
  SEXTETS[unit.charCodeAt(0)] = value;
// The alphabet that URLs prefer.
SEXTETS["-".charCodeAt(0)] = 62;
SEXTETS["_".charCodeAt(0)] = 63;

const HEAD = /^data:[^,]{0,200};base64,/i;

/** Base64 by itself, or behind the head of a data URI. */
export class Base64Bytes {
  readonly #text: string;
  readonly #start: number;
  /** Bytes in all, padding not counted. */
  readonly length: number;

  constructor(text: string) {
    this.#text = text;
    this.#start = HEAD.exec(text)?.[0].length ?? 0;
    let end = text.length;
    while (end > this.#start && end > text.length - 2 && text.charCodeAt(end - 1) === 0x3d) end -= 1;
    this.length = Math.floor(((end - this.#start) * 3) / 4);
  }

  /** NaN past the end, and where the text is no base64: no comparison with it holds. */
  at(index: number): number {
    if (index < 0 || index >= this.length) return Number.NaN;
    const place = this.#start + Math.floor(index / 3) * 4 + (index % 3);
    const left = this.#sextet(place);
    const right = this.#sextet(place + 1);
    if (left < 0 || right < 0) return Number.NaN;
    const shift = 4 - 2 * (index % 3);
    return ((left << (6 - shift)) | (right >>> shift)) & 0xff;
  }

  /** An unsigned number of so many bytes, the most significant first. */
  big(index: number, bytes: number): number {
    let value = 0;
    for (let offset = 0; offset < bytes; offset++) value = value * 256 + this.at(index + offset);
    return value;
  }

  /** The least significant first. */
  little(index: number, bytes: number): number {
    let value = 0;
    for (let offset = bytes - 1; offset >= 0; offset--) value = value * 256 + this.at(index + offset);
    return value;
  }

  /** Whether these letters stand there. */
  says(index: number, letters: string): boolean {
    for (let offset = 0; offset < letters.length; offset++)
      if (this.at(index + offset) !== letters.charCodeAt(offset)) return false;
    return true;
  }

  #sextet(place: number): number {
    return SEXTETS[this.#text.charCodeAt(place)] ?? -1;
  }
}

export function isDataUri(text: string): boolean {
  return HEAD.test(text);
}
