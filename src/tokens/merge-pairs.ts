/** Which two tokens merge into which, and so which two stay apart. */
import { NONE, type Vocabulary } from "./vocabulary.ts";

/** Below half full, so that most of what is not there is found missing at the first look. */
const SLOTS_PER_TOKEN = 2;

/** A slot is the token + 1 below and bits of its hash above, which tell most others apart without a look at the halves. */
const TOKEN_BITS = 18;
const TOKEN_MASK = 2 ** TOKEN_BITS - 1;

/** Above every rank. */
const NO_LIMIT = 0x7fffffff;

/** An open-addressed table over a vocabulary's halves. */
export class MergePairs {
  readonly #slots: Int32Array;
  readonly #mask: number;
  readonly #lefts: Int32Array;
  readonly #rights: Int32Array;

  constructor({ tokenCount, lefts, rights }: Pick<Vocabulary, "tokenCount" | "lefts" | "rights">) {
    const size = 2 ** Math.ceil(Math.log2(tokenCount * SLOTS_PER_TOKEN));
    this.#slots = new Int32Array(size);
    this.#mask = size - 1;
    this.#lefts = lefts;
    this.#rights = rights;
    for (let token = 0; token < tokenCount; token++) this.add(token);
  }

  /** The token's halves are known from now on; one that has none is not noted. */
  add(token: number): void {
    const left = this.#lefts[token] as number;
    if (left === token) return;
    const hash = hashOf(left, this.#rights[token] as number);
    let slot = hash & this.#mask;
    while (this.#slots[slot] !== 0) slot = (slot + 1) & this.#mask;
    this.#slots[slot] = (hash & ~TOKEN_MASK) | (token + 1);
  }

  /** The token that the two merge into, or NONE. */
  merged(left: number, right: number): number {
    const slots = this.#slots;
    const hash = hashOf(left, right);
    for (let slot = hash & this.#mask; ; slot = (slot + 1) & this.#mask) {
      const entry = slots[slot] as number;
      if (entry === 0) return NONE;
      if (((entry ^ hash) & ~TOKEN_MASK) !== 0) continue;
      const token = (entry & TOKEN_MASK) - 1;
      if (this.#lefts[token] === left && this.#rights[token] === right) return token;
    }
  }

  /** Whether two neighbours are what their bytes would be encoded as: no merge across the border comes in time. */
  stayApart(leftToken: number, rightToken: number): boolean {
    const lefts = this.#lefts;
    const rights = this.#rights;
    let left = leftToken;
    let right = rightToken;
    // Undoes the merges beside the border, the latest first, and asks each time what would have merged across it.
    let limit = NO_LIMIT;
    for (;;) {
      const across = this.merged(left, right);
      if (across !== NONE && across < limit) return false;
      const leftHalf = rights[left] as number;
      const rightHalf = lefts[right] as number;
      if (leftHalf !== left && (left > right || rightHalf === right)) {
        limit = left;
        left = leftHalf;
      } else if (rightHalf !== right) {
        // Of two merges of one rank the left one comes first, so across the border an equal one is in time.
        limit = right + 1;
        right = rightHalf;
      } else return true;
    }
  }
}

function hashOf(left: number, right: number): number {
  const mixed = Math.imul(Math.imul(left, 0x9e3779b1) ^ right, 0x85ebca6b);
  return mixed ^ (mixed >>> 15);
}
