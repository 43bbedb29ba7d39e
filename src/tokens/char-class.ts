/**
 * What the split patterns ask of a character. A letter of no case (`Lm`, `Lo`) may stand in either half of a word,
 * and so may a mark, which is no letter besides.
 */
export const OTHER = 0;
export const UPPER = 1;
export const LOWER = 2;
export const CASELESS = 3;
export const MARK = 4;
export const NUMBER = 5;
export const SPACE = 6;
export const NEWLINE = 7;

const PATTERNS: readonly (readonly [RegExp, number])[] = [
  [/^[\r\n]$/u, NEWLINE],
  [/^\s$/u, SPACE],
  [/^[\p{Lu}\p{Lt}]$/u, UPPER],
  [/^\p{Ll}$/u, LOWER],
  [/^[\p{Lm}\p{Lo}]$/u, CASELESS],
  [/^\p{M}$/u, MARK],
  [/^\p{N}$/u, NUMBER],
];

const BLOCK_BITS = 7;
const BLOCK = 2 ** BLOCK_BITS;
const BLOCKS = 0x110000 / BLOCK;

/** A class for every code point: `blocks` says for each 128 of them where their classes begin. */
export interface CharClasses {
  readonly blocks: Uint16Array;
  readonly classes: Uint8Array;
}

export function classOf({ blocks, classes }: CharClasses, codePoint: number): number {
  const block = blocks[codePoint >>> BLOCK_BITS] as number;
  return classes[(block << BLOCK_BITS) | (codePoint & (BLOCK - 1))] as number;
}

/** Asks the running engine's own Unicode tables, as a split pattern run by it would. Slow: done when packing. */
export function buildCharClasses(): CharClasses {
  const blocks = new Uint16Array(BLOCKS);
  const numbers = new Map<string, number>();
  const distinct: number[] = [];
  for (let block = 0; block < BLOCKS; block++) {
    const classes = Array.from({ length: BLOCK }, (_, offset) => classify(block * BLOCK + offset));
    const key = classes.join("");
    let number = numbers.get(key);
    if (number === undefined) {
      number = numbers.size;
      numbers.set(key, number);
      distinct.push(...classes);
    }
    blocks[block] = number;
  }
  return { blocks, classes: Uint8Array.from(distinct) };
}

function classify(codePoint: number): number {
  const character = String.fromCodePoint(codePoint);
  return PATTERNS.find(([pattern]) => pattern.test(character))?.[1] ?? OTHER;
}
