/**
 * A byte-pair vocabulary as a few flat arrays: every token's bytes in one blob, and a hash table over them.
 * The usual map of strings takes seconds and tens of megabytes to build; this takes tens of milliseconds and
 * a few megabytes, which matters because an isolate builds it while a request waits.
 */

/** What `rankOf` answers for bytes that are no token. */
export const NO_RANK = -1;

/** A vocabulary file: lines of "! firstRank token token ...", each token in base64, ranks ascending. */
export interface VocabularyFile {
  readonly pat_str: string;
  readonly bpe_ranks: string;
}

/** Room for 200,000 tokens at less than half full, so a probe is nearly always the first. */
const TABLE_BITS = 19;
const TABLE_MASK = 2 ** TABLE_BITS - 1;

const FNV_OFFSET = 0x811c9dc5;
const FNV_PRIME = 0x01000193;

export class Vocabulary {
  /** Merging only ever compares ranks, so a token's ordinal in the file serves as its rank. */
  readonly #tokenCount: number;
  readonly #blob: Uint8Array;
  /** Token `i` is `blob[offsets[i] .. offsets[i + 1]]`. */
  readonly #offsets: Uint32Array;
  /** Ordinal + 1 by hash with linear probing; 0 is an empty place. */
  readonly #table = new Uint32Array(TABLE_MASK + 1);
  readonly #longestBytes: number;

  constructor(file: VocabularyFile) {
    const { blob, offsets } = decodeTokens(file.bpe_ranks);
    this.#blob = blob;
    this.#offsets = offsets;
    this.#tokenCount = offsets.length - 1;
    let longest = 0;
    for (let ordinal = 0; ordinal < this.#tokenCount; ordinal++) {
      const start = at(offsets, ordinal);
      const end = at(offsets, ordinal + 1);
      longest = Math.max(longest, end - start);
      let slot = hashOf(blob, start, end) & TABLE_MASK;
      while (this.#table[slot] !== 0) slot = (slot + 1) & TABLE_MASK;
      this.#table[slot] = ordinal + 1;
    }
    this.#longestBytes = longest;
  }

  get tokenCount(): number {
    return this.#tokenCount;
  }

  /** The rank of `bytes[start .. end]` as one token, or NO_RANK. */
  rankOf(bytes: Uint8Array, start: number, end: number): number {
    const length = end - start;
    if (length > this.#longestBytes) return NO_RANK;
    const table = this.#table;
    const offsets = this.#offsets;
    for (let slot = hashOf(bytes, start, end) & TABLE_MASK; ; slot = (slot + 1) & TABLE_MASK) {
      const ordinal = at(table, slot) - 1;
      if (ordinal < 0) return NO_RANK;
      const offset = at(offsets, ordinal);
      if (at(offsets, ordinal + 1) - offset === length && this.#holds(offset, bytes, start, length))
        return ordinal;
    }
  }

  #holds(offset: number, bytes: Uint8Array, start: number, length: number): boolean {
    const blob = this.#blob;
    for (let i = 0; i < length; i++) if (blob[offset + i] !== bytes[start + i]) return false;
    return true;
  }
}

/** Indexed reads below are in range by construction; this says so to the compiler, and is inlined away. */
function at(array: Uint32Array, index: number): number {
  return array[index] as number;
}

/** FNV-1a, folded, because the table looks at the low bits alone. */
function hashOf(bytes: Uint8Array, start: number, end: number): number {
  let hash = FNV_OFFSET;
  for (let i = start; i < end; i++) hash = Math.imul(hash ^ (bytes[i] as number), FNV_PRIME);
  return hash ^ (hash >>> 15);
}

function decodeTokens(lines: string): { blob: Uint8Array; offsets: Uint32Array } {
  const blob = new Uint8Array(lines.length);
  const offsets: number[] = [0];
  let length = 0;
  for (const line of lines.split("\n")) {
    // The first two words are a marker and the rank of the line's first token.
    let from = line.indexOf(" ", line.indexOf(" ") + 1) + 1;
    while (from > 0 && from < line.length) {
      const space = line.indexOf(" ", from);
      const to = space < 0 ? line.length : space;
      length += decodeBase64(line, from, to, blob, length);
      offsets.push(length);
      from = to + 1;
    }
  }
  return { blob: blob.slice(0, length), offsets: Uint32Array.from(offsets) };
}

const BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const SEXTETS = new Uint8Array(128);
for (let i = 0; i < BASE64.length; i++) SEXTETS[BASE64.charCodeAt(i)] = i;

/** Writes the bytes of `text[from .. to]` at `offset`; returns how many. */
function decodeBase64(text: string, from: number, to: number, into: Uint8Array, offset: number): number {
  let bits = 0;
  let held = 0;
  let written = 0;
  for (let i = from; i < to; i++) {
    const unit = text.charCodeAt(i);
    if (unit === 0x3d) break;
    held = (held << 6) | (SEXTETS[unit] as number);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    into[offset + written] = (held >>> bits) & 0xff;
    written += 1;
  }
  return written;
}
