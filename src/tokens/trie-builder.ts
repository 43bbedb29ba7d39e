/** Lays a trie of tokens out as a double array (see `vocabulary.ts`). */
import { ENDS, LEAF, RANK_LABEL, VALUE_SHIFT } from "./vocabulary.ts";

interface Node {
  readonly children: Map<number, Node>;
  readonly depth: number;
  /** Of the first token that led here. */
  readonly firstRank: number;
  rank: number | null;
  base: number;
}

/**
 * Tokens by rank, each byte a character of that code. Nodes on the way to low ranks, which are the frequent tokens, get
 * the low slots: so what most text needs lies in a few cache lines.
 */
export function buildTrie(tokens: readonly string[]): { trie: Int32Array<ArrayBuffer>; rootBase: number } {
  const root = nodeAt(0, 0);
  const nodes = [root];
  for (const [rank, bytes] of tokens.entries()) insert(root, bytes, rank, nodes);
  const slots = new Slots();
  const inner = nodes.filter(({ children }) => children.size > 0);
  for (const node of inner.toSorted((a, b) => a.firstRank - b.firstRank || a.depth - b.depth)) {
    const labels = [...node.children.keys()].map(labelOf);
    node.base = slots.baseFor(labels, node.rank !== null);
    if (node.rank !== null) slots.write(node.base, RANK_LABEL, node.rank);
  }
  for (const { base, children } of inner) {
    for (const [byte, child] of children) {
      const label = labelOf(byte) | (child.rank === null ? 0 : ENDS);
      if (child.children.size > 0) slots.write(base + labelOf(byte), label, child.base);
      else slots.write(base + labelOf(byte), label | LEAF, child.rank ?? 0);
    }
  }
  return { trie: slots.finished(), rootBase: root.base };
}

function nodeAt(depth: number, firstRank: number): Node {
  return { children: new Map(), depth, firstRank, rank: null, base: 0 };
}

function insert(root: Node, bytes: string, rank: number, nodes: Node[]): void {
  let node = root;
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes.charCodeAt(at);
    let child = node.children.get(byte);
    if (child === undefined) {
      child = nodeAt(at + 1, rank);
      node.children.set(byte, child);
      nodes.push(child);
    }
    node = child;
  }
  node.rank = rank;
}

const labelOf = (byte: number): number => byte + 1;

/** More than any vocabulary here needs; what is not used is cut off. */
const SLOTS_MAX = 2 ** 21;
/** Where a search took so long, the next begins at its end: a few holes remain, and a build takes seconds, not a minute. */
const SEARCH_MAX = 2 ** 10;

class Slots {
  readonly #entries = new Int32Array(SLOTS_MAX);
  readonly #taken = new Uint8Array(SLOTS_MAX);
  /** Two nodes with one base could take each other's children for their own. */
  readonly #bases = new Uint8Array(SLOTS_MAX);
  #firstFree = 1;
  #used = 0;

  /** The lowest base under which all labels are free, and so is its own slot where a rank must lie there. */
  baseFor(labels: readonly number[], withRank: boolean): number {
    while (this.#taken[this.#firstFree] === 1) this.#firstFree += 1;
    const least = Math.min(...labels, withRank ? 0 : Number.POSITIVE_INFINITY);
    const from = Math.max(this.#firstFree, least + 1);
    for (let slot = from; ; slot++) {
      const base = slot - least;
      if (slot - from === SEARCH_MAX) this.#firstFree = slot;
      if (this.#taken[slot] === 1 || this.#bases[base] === 1) continue;
      if (labels.every((label) => this.#taken[base + label] === 0)) return this.#take(base, labels, withRank);
    }
  }

  write(slot: number, flags: number, value: number): void {
    this.#entries[slot] = flags | (value << VALUE_SHIFT);
  }

  /** With room at the end, so that a walk never looks beyond. */
  finished(): Int32Array<ArrayBuffer> {
    return this.#entries.slice(0, this.#used + RANK_LABEL + 1);
  }

  #take(base: number, labels: readonly number[], withRank: boolean): number {
    this.#bases[base] = 1;
    if (withRank) this.#taken[base] = 1;
    for (const label of labels) {
      this.#taken[base + label] = 1;
      this.#used = Math.max(this.#used, base + label);
    }
    return base;
  }
}
