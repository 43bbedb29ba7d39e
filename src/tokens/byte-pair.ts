/**
 * Byte-pair encoding without merging. A text's encoding is the one sequence of tokens in which each two neighbours
 * would stay apart if they were encoded alone; so the longest token is tried first, and a shorter one, or a step back,
 * where it does not fit its predecessor. Each position is given up at most once, so the work grows with the length.
 * The idea is that of GitHub's `bpe` crate (github.com/github/rust-gems).
 */
import { MergePairs } from "./merge-pairs.ts";
import { ENDS, LABEL_MASK, LEAF, NONE, VALUE_SHIFT, type Vocabulary } from "./vocabulary.ts";

/** Scratch that is kept; longer pieces get their own. */
const SCRATCH_BYTES = 2 ** 12;

/** The last judgements are remembered, which text repeats and runs of one character repeat without end. */
const MEMORY_BITS = 13;
const MEMORY_SHIFT = 32 - MEMORY_BITS;

export class BytePair {
  /**
   * Bytes looked up and neighbours judged since the beginning. What a judgement takes is not counted: it depends on
   * what is remembered, and a count of steps must not depend on what was counted before.
   */
  steps = 0;
  readonly #trie: Int32Array;
  readonly #rootBase: number;
  readonly #lengths: Uint8Array;
  readonly #prefixes: Int32Array;
  readonly #pairs: MergePairs;
  /** Triples: of two neighbours, what the second became. */
  readonly #remembered = new Int32Array(3 * 2 ** MEMORY_BITS).fill(NONE);
  readonly #stack = new Int32Array(SCRATCH_BYTES + 1);
  readonly #givenUp = new Uint8Array(SCRATCH_BYTES + 1);

  constructor(vocabulary: Vocabulary) {
    this.#trie = vocabulary.trie;
    this.#rootBase = vocabulary.rootBase;
    this.#lengths = vocabulary.lengths;
    this.#prefixes = vocabulary.prefixes;
    this.#pairs = new MergePairs(vocabulary);
  }

  /** Tokens of a piece, which is not empty. */
  count(bytes: Uint8Array, from: number, to: number): number {
    return this.#isToken(bytes, from, to) ? 1 : this.#encode(bytes, from, to);
  }

  /** Most pieces are one token, and this is all that is done for them. */
  #isToken(bytes: Uint8Array, from: number, to: number): boolean {
    const trie = this.#trie;
    let base = this.#rootBase;
    let node = 0;
    this.steps += to - from;
    for (let at = from; at < to; at++) {
      const label = (bytes[at] as number) + 1;
      node = trie[base + label] as number;
      if ((node & LABEL_MASK) !== label) return false;
      if ((node & LEAF) !== 0) return at + 1 === to;
      base = node >>> VALUE_SHIFT;
    }
    return (node & ENDS) !== 0;
  }

  /** The longest token that `bytes[from .. to]` begins with. There is one: each byte is a token. */
  #longest(bytes: Uint8Array, from: number, to: number): number {
    const trie = this.#trie;
    let base = this.#rootBase;
    let longest = 0;
    let at = from;
    while (at < to) {
      const label = (bytes[at] as number) + 1;
      const node = trie[base + label] as number;
      if ((node & LABEL_MASK) !== label) break;
      at += 1;
      if ((node & ENDS) !== 0) {
        longest = node;
        if ((node & LEAF) !== 0) break;
      }
      base = node >>> VALUE_SHIFT;
    }
    this.steps += at - from;
    const value = longest >>> VALUE_SHIFT;
    return (longest & LEAF) !== 0 ? value : (trie[value] as number) >>> VALUE_SHIFT;
  }

  #encode(bytes: Uint8Array, from: number, to: number): number {
    const length = to - from;
    const kept = length <= SCRATCH_BYTES;
    const stack = kept ? this.#stack : new Int32Array(length + 1);
    const givenUp = kept ? this.#givenUp.fill(0, 0, length + 1) : new Uint8Array(length + 1);
    const lengths = this.#lengths;
    const prefixes = this.#prefixes;
    let depth = 0;
    let last = NONE;
    let position = 0;
    let token = this.#longest(bytes, from, to);
    for (;;) {
      if (token !== NONE && last !== NONE) token = this.#longestAfter(last, token);
      if (token === NONE) {
        // Nothing fits here after what stands before: that goes, and never ends here again.
        givenUp[position] = 1;
        depth -= 1;
        position -= lengths[last] as number;
        token = prefixes[last] as number;
        last = depth === 0 ? NONE : (stack[depth - 1] as number);
        continue;
      }
      const end = position + (lengths[token] as number);
      if (givenUp[end] === 1) {
        token = prefixes[token] as number;
        continue;
      }
      if (end === length) return depth + 1;
      stack[depth++] = token;
      last = token;
      position = end;
      token = this.#longest(bytes, from + end, to);
    }
  }

  /** `token`, or the longest that it begins with, that stays apart from `last`; NONE if there is none. */
  #longestAfter(last: number, token: number): number {
    this.steps += 1;
    const remembered = this.#remembered;
    const place = ((Math.imul(last, 0x9e3779b1) ^ Math.imul(token, 0x85ebca6b)) >>> MEMORY_SHIFT) * 3;
    if (remembered[place] === last && remembered[place + 1] === token) return remembered[place + 2] as number;
    let fitting = token;
    while (fitting !== NONE && !this.#pairs.stayApart(last, fitting))
      fitting = this.#prefixes[fitting] as number;
    remembered[place] = last;
    remembered[place + 1] = token;
    remembered[place + 2] = fitting;
    return fitting;
  }
}
