/** What is not text in an Anthropic message: priced by bounds, and its base64 never meets the tokenizer. */
import type { Tally } from "../tokens/tally.ts";
import type { JsonRecord } from "./json-values.ts";
import { decodedBytes, UNSEEN_TOKENS } from "./opaque.ts";

/**
 * An image costs width x height / 750 tokens after it was fitted into what the model takes: about 1,600 tokens, and
 * 4,784 for the models with high-resolution vision, Opus 4.7 and later.
 * Source: https://platform.claude.com/docs/en/build-with-claude/vision
 */
export const IMAGE_TOKENS_MAX = 1600;
export const LARGE_IMAGE_TOKENS_MAX = 4784;
const EARLIER_VISION = /claude-(3|(opus|sonnet)-4-([0-6]\b|20)|haiku-4)/;

/**
 * Each page of a PDF is read as text, 3,000 tokens at most, and as an image; a request may bring 600 pages. Bytes
 * tell little of pages, so within that it is four of them a token, and usage settles the rest.
 * Source: https://platform.claude.com/docs/en/build-with-claude/pdf-support
 */
const PAGES_MAX = 600;
const PAGE_TEXT_TOKENS = 3000;
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
  model: string,
  tally: Tally,
): "data" | "url" | null {
  const imageTokens = EARLIER_VISION.test(model) ? IMAGE_TOKENS_MAX : LARGE_IMAGE_TOKENS_MAX;
  const seen = type === "base64" && typeof data === "string";
  if (!seen && type !== "url" && type !== "file") return null;
  if (kind === "image") tally.bound("images", imageTokens);
  else tally.bound("files", seen ? documentTokens(data, imageTokens) : UNSEEN_TOKENS);
  if (seen) return "data";
  return typeof url === "string" ? "url" : null;
}

function documentTokens(data: string, imageTokens: number): number {
  const most = PAGES_MAX * (PAGE_TEXT_TOKENS + imageTokens);
  return Math.min(most, Math.ceil(decodedBytes(data) / FILE_BYTES_PER_TOKEN));
}
