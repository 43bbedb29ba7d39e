/** Content that cannot be read here: priced by its size or by a figure of its own, never fed to a tokenizer. */
import { Base64Bytes } from "../tokens/media/base64-bytes.ts";
import type { Component, Tally } from "../tokens/tally.ts";

/** Content that is only named, by an address or an id, so that nothing of it is seen. */
export const UNSEEN_TOKENS = 4096;

/** Four bytes of text make a token, as a rule of thumb; encrypted text is no shorter than what it hides. */
const BYTES_PER_TOKEN = 4;

/** An encrypted part that the provider reads: a signature of thoughts, or thoughts themselves. */
export function countOpaque(component: Component, text: string, tally: Tally): void {
  tally.bound(component, Math.ceil(decodedBytes(text) / BYTES_PER_TOKEN));
}

/** Bytes behind base64, with or without the head of a data URI. */
export function decodedBytes(base64: string): number {
  return new Base64Bytes(base64).length;
}
