/**
 * Counts equal js-tiktoken's on 240,000 strings, half of either encoding: of characters drawn from all planes, of
 * fragments that the split patterns tell apart, and cut out of real text. The same strings arrive once more in pieces.
 */
import { describe, expect, it } from "vitest";
import type { Counter, EncodingName } from "../../src/tokens/counter.ts";
import { loadEncoding } from "../../src/tokens/encodings.ts";
import { Corpus, KINDS } from "../bench/support/corpora.ts";
import { ENCODINGS, plainTokens } from "./oracle.ts";

const STRINGS_PER_KIND = 40_000;

/** Marsaglia's xorshift: the same strings in every run. */
class Dice {
  #state: number;

  constructor(seed: number) {
    this.#state = seed;
  }

  below(n: number): number {
    let state = this.#state;
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    this.#state = state;
    return (state >>> 0) % n;
  }

  of<T>(list: readonly T[]): T {
    return list[this.below(list.length)] as T;
  }
}

/** What the patterns ask about, with lone surrogates, joiners, and white space that JavaScript sees differently. */
const FRAGMENTS = [
  ..."abcdefghijklmnopqrstuvwxyz",
  ..."ABCXYZ",
  ..."0123456789",
  ..."'’\"!@#$%^&*()-_=+[]{};:,.<>/?|~`\\",
  ..." \t\n\r\u000b\u00a0\u0085\u2028\u3000\ufeff",
  ..."éßüÀÉǅʰªºĀ٣½Ⅷ०",
  ..."日本語中文한국어ひらがなไทยหน้าनमस्तेعربي",
  ..."\u0301\u0308\u20e3\u200d\ufe0e\u0e34",
  ..."😀👩👧🏽𐍈𝒜𠀀🇩🇪",
  "\ud83d",
  "\udc00",
  "'s",
  "'RE",
  "'ll",
  "'D",
  "  ",
  "\r\n",
  "\n\n",
  "//",
  "the",
  " of",
  " function",
  "<|endoftext|>",
  "<|im_start|>",
  "aaaa",
  "====",
];

const MAKERS: Readonly<Record<string, (dice: Dice) => string>> = {
  planes: (dice) =>
    Array.from({ length: dice.below(24) }, () => {
      const plane = dice.of([0, 0, 0, 1, 2, dice.below(17)]);
      return String.fromCodePoint(plane * 0x10000 + dice.below(0x10000));
    }).join(""),
  fragments: (dice) =>
    Array.from({ length: dice.below(32) }, () => {
      const fragment = dice.of(FRAGMENTS);
      return dice.below(8) === 0 ? fragment.repeat(1 + dice.below(20)) : fragment;
    }).join(""),
  corpora: (dice) => {
    const text = dice.of(TEXTS);
    const from = dice.below(text.length);
    return text.slice(from, from + dice.below(160));
  },
};

const TEXTS = KINDS.map((kind) => new Corpus(kind).text);

/** In up to eight additions, some of which part a character in two. */
function runningTokens(counter: Counter, text: string, dice: Dice): number {
  const running = counter.running();
  for (let from = 0; from < text.length; ) {
    const to = from + 1 + dice.below(1 + (text.length >> 2));
    running.push(text.slice(from, to));
    from = to;
  }
  return running.tokens;
}

describe.each(ENCODINGS)("%s", (encoding: EncodingName) => {
  it.each(Object.keys(MAKERS))(
    "counts as js-tiktoken does: %s",
    async (kind) => {
      const counter = await loadEncoding(encoding);
      const make = MAKERS[kind] as (dice: Dice) => string;
      const dice = new Dice(20_260_101);
      const wrong: unknown[] = [];
      for (let i = 0; i < STRINGS_PER_KIND; i++) {
        const text = make(dice);
        const expected = plainTokens(encoding, text);
        const counted = counter.count(text);
        const running = runningTokens(counter, text, dice);
        if (counted.tokens !== expected || counted.bounded || running !== expected)
          wrong.push({ text, expected, counted, running });
      }
      expect(wrong.slice(0, 5)).toEqual([]);
    },
    60_000,
  );
});
