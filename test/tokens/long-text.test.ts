/** On text that js-tiktoken's encoder takes too long for: counts equal gpt-tokenizer's. */
import { countTokens as cl100kTokens } from "gpt-tokenizer/encoding/cl100k_base";
import { countTokens as o200kTokens } from "gpt-tokenizer/encoding/o200k_base";
import { describe, expect, it } from "vitest";
import { loadEncoding } from "../../src/tokens/encodings.ts";
import { Corpus, KINDS } from "../bench/support/corpora.ts";

const PEERS = { o200k_base: o200kTokens, cl100k_base: cl100kTokens };
const ALL_TEXT = { allowedSpecial: new Set<string>(), disallowedSpecial: new Set<string>() };

/** Runs as long as the peer finishes in a second or two. */
const RUNS = ["a", " ", "漢", "😀", "-", "\n", "\u0301", "aA", "1", "的一是不了人我在有他", "abcdefg"];
const RUN_UNITS = 20_000;

describe.each(["o200k_base", "cl100k_base"] as const)("%s", (encoding) => {
  const peer = (text: string) => PEERS[encoding](text, ALL_TEXT);

  it.each(KINDS)(
    "counts half a million characters as gpt-tokenizer does: %s",
    async (kind) => {
      const counter = await loadEncoding(encoding);
      const text = new Corpus(kind).text.slice(0, 500_000);
      expect(counter.count(text)).toEqual({ tokens: peer(text), bounded: false });
    },
    30_000,
  );

  it.each(RUNS)(
    "counts a run as gpt-tokenizer does: %j",
    async (unit) => {
      const counter = await loadEncoding(encoding);
      const text = unit.repeat(RUN_UNITS / unit.length);
      expect(counter.count(text)).toEqual({ tokens: peer(text), bounded: false });
    },
    30_000,
  );
});
