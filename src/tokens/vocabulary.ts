/**
 * A byte-pair vocabulary as flat arrays that lie in one file and are used as they lie: nothing is parsed and nothing
 * copied. `pack.ts` writes it. A token is named by its rank: the order in which merging prefers it.
 */
import type { CharClasses } from "./char-class.ts";

/** No token. */
export const NONE = -1;

/**
 * A slot of the trie, a double array: the child for byte `b` of a node with base `B` lies in slot `B + b + 1`, if that
 * slot's label is `b + 1`. Bases are distinct, so a label that fits is proof.
 */
export const LABEL_MASK = 0x1ff;
/** A token ends here. */
export const ENDS = 0x200;
/** Nothing goes on from here: the value is the token, not a base. Elsewhere the token lies in slot `B`. */
export const LEAF = 0x400;
export const VALUE_SHIFT = 11;
/** The label of slot `B`, which no byte has. */
export const RANK_LABEL = 0x1ff;

export const MAGIC = 0x72696577;
export const VERSION = 1;

/** Words of the file's head, in their order. */
export const HEAD = [
  "magic",
  "version",
  "rootBase",
  "tokenCount",
  "slotCount",
  "blockCount",
  "classCount",
] as const;
/** The digest follows, in bytes. */
export const DIGEST_BYTES = 8;
export const HEAD_BYTES = HEAD.length * 4 + DIGEST_BYTES;

export interface Vocabulary {
  /** Names this content, in hexadecimal: of another vocabulary or another packing it is another. */
  readonly digest: string;
  readonly tokenCount: number;
  readonly trie: Int32Array;
  readonly rootBase: number;
  /** Bytes of each token. */
  readonly lengths: Uint8Array;
  /** Of each token the longest shorter one that it begins with, or NONE. */
  readonly prefixes: Int32Array;
  /** The two tokens that merge into each; itself, twice, for one that nothing merges into. */
  readonly lefts: Int32Array;
  readonly rights: Int32Array;
  readonly classes: CharClasses;
}

export class UnreadableVocabulary extends Error {
  override readonly name = "UnreadableVocabulary";
}

/** Views of a packed file. Throws when it is no such file, or cut short: a build gone wrong. */
export function readVocabulary(file: ArrayBuffer): Vocabulary {
  if (file.byteLength < HEAD_BYTES)
    throw new UnreadableVocabulary("expected a packed vocabulary, got too few bytes");
  const head = new Uint32Array(file, 0, HEAD.length);
  const [magic, version, rootBase = 0, tokenCount = 0, slotCount = 0, blockCount = 0, classCount = 0] = head;
  if (magic !== MAGIC || version !== VERSION)
    throw new UnreadableVocabulary(
      `expected a packed vocabulary of version ${VERSION}, got ${magic}/${version}`,
    );
  let offset = HEAD_BYTES;
  const words = (count: number) => {
    const view = new Int32Array(file, offset, count);
    offset += count * 4;
    return view;
  };
  const expected = HEAD_BYTES + 4 * (slotCount + 3 * tokenCount) + 2 * blockCount + classCount + tokenCount;
  if (file.byteLength !== expected)
    throw new UnreadableVocabulary(
      `expected ${expected} bytes of a packed vocabulary, got ${file.byteLength}`,
    );
  const [trie, prefixes, lefts, rights] = [
    words(slotCount),
    words(tokenCount),
    words(tokenCount),
    words(tokenCount),
  ];
  const blocks = new Uint16Array(file, offset, blockCount);
  const classes = new Uint8Array(file, offset + 2 * blockCount, classCount);
  const lengths = new Uint8Array(file, offset + 2 * blockCount + classCount, tokenCount);
  const digest = Array.from(new Uint8Array(file, HEAD.length * 4, DIGEST_BYTES), (byte) =>
    byte.toString(16).padStart(2, "0"),
  ).join("");
  return {
    digest,
    tokenCount,
    trie,
    rootBase,
    lengths,
    prefixes,
    lefts,
    rights,
    classes: { blocks, classes },
  };
}
