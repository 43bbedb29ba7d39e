/** js-tiktoken's own encoder, special tokens off: what a count must equal where it can be waited for. */
import { Tiktoken } from "js-tiktoken/lite";
import cl100kBase from "js-tiktoken/ranks/cl100k_base";
import o200kBase from "js-tiktoken/ranks/o200k_base";
import type { EncodingName } from "../../src/tokens/counter.ts";

export const ENCODINGS = ["o200k_base", "cl100k_base"] as const;

const PLAIN: Readonly<Record<EncodingName, Tiktoken>> = {
  o200k_base: new Tiktoken(o200kBase),
  cl100k_base: new Tiktoken(cl100kBase),
};

/** A lone surrogate has no bytes: an encoder writes U+FFFD for it. */
export const plainTokens = (encoding: EncodingName, text: string): number =>
  PLAIN[encoding].encode(text.toWellFormed(), [], []).length;
