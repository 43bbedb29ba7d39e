/**
 * Packs one of js-tiktoken's vocabularies into the file that `vocabulary.ts` reads. Runs when the project is built.
 */
import { buildCharClasses } from "./char-class.ts";
import { MergePairs } from "./merge-pairs.ts";
import { buildTrie } from "./trie-builder.ts";
import { DIGEST_BYTES, HEAD, HEAD_BYTES, MAGIC, NONE, VERSION, type Vocabulary } from "./vocabulary.ts";

/** Lines of "! firstRank token token ...", each token in base64, ranks ascending. */
export function packVocabulary(
  ranks: string,
  digestOf: (file: Uint8Array) => Uint8Array,
): Uint8Array<ArrayBuffer> {
  const tokens = tokensOf(ranks);
  const tokenOf = new Map(tokens.map((bytes, rank) => [bytes, rank]));
  const prefixes = Int32Array.from(tokens, (bytes) => longestPrefix(bytes, tokenOf));
  const { lefts, rights } = halves(tokens, tokenOf, prefixes);
  const { trie, rootBase } = buildTrie(tokens);
  const lengths = Uint8Array.from(tokens, (bytes) => bytes.length);
  const { blocks, classes } = buildCharClasses();
  const values = {
    magic: MAGIC,
    version: VERSION,
    rootBase,
    tokenCount: tokens.length,
    slotCount: trie.length,
    blockCount: blocks.length,
    classCount: classes.length,
  };
  const head = Uint32Array.from(HEAD, (name) => values[name]);
  const parts = [head, new Uint8Array(DIGEST_BYTES), trie, prefixes, lefts, rights, blocks, classes, lengths];
  const file = new Uint8Array(parts.reduce((sum, part) => sum + part.byteLength, 0));
  let offset = 0;
  for (const part of parts) {
    file.set(new Uint8Array(part.buffer, part.byteOffset, part.byteLength), offset);
    offset += part.byteLength;
  }
  file.set(digestOf(file).subarray(0, DIGEST_BYTES), HEAD_BYTES - DIGEST_BYTES);
  return file;
}

/** Tokens by rank, each byte a character of that code. */
function tokensOf(ranks: string): string[] {
  return ranks
    .split("\n")
    .filter((line) => line !== "")
    .flatMap((line) => line.split(" ").slice(2).map(atob));
}

function longestPrefix(bytes: string, tokenOf: ReadonlyMap<string, number>): number {
  for (let length = bytes.length - 1; length > 0; length--) {
    const prefix = tokenOf.get(bytes.slice(0, length));
    if (prefix !== undefined) return prefix;
  }
  return NONE;
}

/**
 * The last merge of each token: the one split into two lower tokens that stay apart while it is not yet known. In
 * order of rank, so that what merges earlier is known by then.
 */
function halves(
  tokens: readonly string[],
  tokenOf: ReadonlyMap<string, number>,
  prefixes: Int32Array,
): Pick<Vocabulary, "lefts" | "rights"> {
  const lefts = Int32Array.from(tokens, (_, rank) => rank);
  const rights = Int32Array.from(lefts);
  const pairs = new MergePairs({ tokenCount: tokens.length, lefts, rights });
  for (const [rank, bytes] of tokens.entries()) {
    for (let left = prefixes[rank] as number; left !== NONE; left = prefixes[left] as number) {
      const right = tokenOf.get(bytes.slice((tokens[left] as string).length));
      if (right === undefined || left > rank || right > rank || !pairs.stayApart(left, right)) continue;
      lefts[rank] = left;
      rights[rank] = right;
      pairs.add(rank);
      break;
    }
  }
  return { lefts, rights };
}
