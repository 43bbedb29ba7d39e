/**
 * Byte-pair merging in O(n log n): how many tokens a piece of bytes becomes.
 * The textbook loop rescans the whole piece for every merge, so 100 kB of one letter pins a CPU for minutes.
 * Here the candidate merges wait in a heap ordered by rank and then by position, which takes exactly the same
 * merges in the same order; a candidate that an earlier merge overtook is recognised by its rank when it is popped.
 */
import { NO_RANK, type Vocabulary } from "./vocabulary.ts";

const POSITION_BITS = 14;

/** The longest piece merged at once: a position fits its bits of a heap key, and the scratch arrays stay in cache. */
export const SEGMENT_BYTES = 2 ** POSITION_BITS;

const POSITION_MASK = SEGMENT_BYTES - 1;

/** Scratch is allocated once per merger: merging is synchronous, so it is never shared by two pieces. */
export class Merger {
  readonly #vocabulary: Vocabulary;
  /** Parts are named by where they start; `next` of the last part is the piece's length. */
  readonly #next = new Int32Array(SEGMENT_BYTES + 1);
  readonly #previous = new Int32Array(SEGMENT_BYTES + 1);
  /** Rank of the token that a part and its successor would make. */
  readonly #ranks = new Int32Array(SEGMENT_BYTES + 1);
  readonly #heap = new CandidateHeap();

  constructor(vocabulary: Vocabulary) {
    this.#vocabulary = vocabulary;
  }

  /** Tokens of `bytes[start .. end]`, at most SEGMENT_BYTES long. */
  count(bytes: Uint8Array, start: number, end: number): number {
    const next = this.#next;
    const previous = this.#previous;
    const ranks = this.#ranks;
    const length = end - start;
    for (let part = 0; part < length; part++) {
      next[part] = part + 1;
      previous[part] = part - 1;
      this.#propose(bytes, start, part, part + 2, length);
    }
    let parts = length;
    for (let key = this.#heap.pop(); key !== EMPTY; key = this.#heap.pop()) {
      const part = key & POSITION_MASK;
      if (ranks[part] !== key >>> POSITION_BITS) continue;
      const absorbed = next[part] as number;
      const after = next[absorbed] as number;
      ranks[absorbed] = NO_RANK;
      next[part] = after;
      parts -= 1;
      if (after < length) previous[after] = part;
      this.#propose(bytes, start, part, after < length ? (next[after] as number) : length + 1, length);
      const before = previous[part] as number;
      if (before >= 0) this.#propose(bytes, start, before, after, length);
    }
    return parts;
  }

  /** Notes what `part` and its successor, which ends at `to`, would make; past the end there is no successor. */
  #propose(bytes: Uint8Array, start: number, part: number, to: number, length: number): void {
    const rank = to <= length ? this.#vocabulary.rankOf(bytes, start + part, start + to) : NO_RANK;
    this.#ranks[part] = rank;
    if (rank !== NO_RANK) this.#heap.push(((rank << POSITION_BITS) | part) >>> 0);
  }
}

/** What `pop` answers when nothing is left; no key is negative. */
const EMPTY = -1;

/** A binary min-heap of 32-bit keys: rank above, position below. A merge takes one and adds at most two. */
class CandidateHeap {
  readonly #keys = new Uint32Array(2 * SEGMENT_BYTES + 2);
  #size = 0;

  push(key: number): void {
    const keys = this.#keys;
    let index = this.#size++;
    while (index > 0) {
      const parent = (index - 1) >> 1;
      const above = keys[parent] as number;
      if (above <= key) break;
      keys[index] = above;
      index = parent;
    }
    keys[index] = key;
  }

  pop(): number {
    if (this.#size === 0) return EMPTY;
    const keys = this.#keys;
    const least = keys[0] as number;
    const size = --this.#size;
    const last = keys[size] as number;
    let index = 0;
    for (let child = 1; child < size; child = 2 * index + 1) {
      if (child + 1 < size && (keys[child + 1] as number) < (keys[child] as number)) child += 1;
      const below = keys[child] as number;
      if (below >= last) break;
      keys[index] = below;
      index = child;
    }
    keys[index] = last;
    return least;
  }
}
