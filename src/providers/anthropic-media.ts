/** What is not text in an Anthropic message: priced by bounds, and its base64 never meets the tokenizer. */
import type { Tally } from "../tokens/tally.ts";
import type { JsonRecord } from "./json-values.ts";
import { decodedBytes, UNSEEN_TOKENS } from "./opaque.ts";

/**
 * Each page of a PDF is read as text, 3,000 tokens at most, and as an image; a request may bring 600 pages. Bytes
 * tell little of pages, so within that it is four of them a token, and usage settles the rest.
 * Source: https://platform.claude.com/docs/en/build-with-claude/pdf-support
 */
const DOCUMENT_TOKENS_MAX = 600 * (3000 + 4784);
const FILE_BYTES_PER_TOKEN = 4;

/** A source's own members, which say how to read it. */
export const SOURCE_LABELS: ReadonlySet<string> = new Set(["type", "media_type", "file_id"]);

/**
 * The source of a block of this kind. Gives back which of its members was priced as a medium, and is therefore no
 * text: none where the source is text itself, or a list of blocks.
 */
export function countSource(
  kind: unknown,
  { type, data, url }: JsonRecord,
  tally: Tally,
): "data" | "url" | null {
  const seen = type === "base64" && typeof data === "string";
  if (!seen && type !== "url" && type !== "file") return null;
  if (kind === "image") tally.image(undefined, seen ? data : null);
  else tally.bound("files", seen ? documentTokens(data) : UNSEEN_TOKENS);
  if (seen) return "data";
  return typeof url === "string" ? "url" : null;
}

function documentTokens(data: string): number {
  return Math.min(DOCUMENT_TOKENS_MAX, Math.ceil(decodedBytes(data) / FILE_BYTES_PER_TOKEN));
}
