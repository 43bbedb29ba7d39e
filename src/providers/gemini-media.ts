/** What is not text in a Gemini part: priced by bounds, and its base64 never meets the tokenizer. */
import type { Tally } from "../tokens/tally.ts";
import { camelCase, memberOf } from "./gemini-names.ts";
import type { JsonRecord } from "./json-values.ts";
import { decodedBytes, UNSEEN_TOKENS } from "./opaque.ts";
import { countMember } from "./prompt-text.ts";

/**
 * Sound is read at 32 tokens a second, and video at 263 without it. A video's length is not seen, so the slowest
 * plausible byte rate bounds it, 30 kB/s. Source: https://ai.google.dev/gemini-api/docs/tokens
 */
const AUDIO_TOKENS_PER_SECOND = 32;
const VIDEO_BYTES_PER_TOKEN = 30_000 / (263 + AUDIO_TOKENS_PER_SECOND);

/** A document is read page by page: 1,000 of them at most, and at most 1,120 tokens each. */
const DOCUMENT_TOKENS_MAX = 1_000 * 1_120;
const DOCUMENT_BYTES_PER_TOKEN = 4;

/** Text that comes as bytes: half a token a byte is more than prose or code ever makes. */
const TEXT_BYTES_PER_TOKEN = 2;

const LABELS: ReadonlySet<string> = new Set(["mimeType", "mime_type", "fileUri", "file_uri"]);

/**
 * `inlineData` brings the bytes, `fileData` an address. What stands beside is counted as text. `resolution` is how
 * closely the model is to look, if the request says.
 */
export function countMedium(medium: JsonRecord, resolution: unknown, tally: Tally): void {
  const mime = memberOf(medium, "mimeType");
  const kind = typeof mime === "string" ? mime.toLowerCase() : "";
  const { data } = medium;
  if (kind.startsWith("image/")) tally.image(resolution, typeof data === "string" ? data : null);
  else if (typeof data !== "string") tally.bound("files", UNSEEN_TOKENS);
  else if (kind.startsWith("audio/")) tally.audio(AUDIO_TOKENS_PER_SECOND, data, kind);
  else tally.bound("files", fileTokens(kind, decodedBytes(data)));
  for (const entry of Object.entries(medium)) {
    const [member, value] = entry;
    const isContent = member === "data" || camelCase(member) === "fileUri";
    if (!isContent || typeof value !== "string") countMember("messages", entry, LABELS, tally);
  }
}

function fileTokens(kind: string, bytes: number): number {
  if (kind.startsWith("video/")) return Math.ceil(bytes / VIDEO_BYTES_PER_TOKEN);
  if (kind === "application/pdf")
    return Math.min(DOCUMENT_TOKENS_MAX, Math.ceil(bytes / DOCUMENT_BYTES_PER_TOKEN));
  return Math.ceil(bytes / TEXT_BYTES_PER_TOKEN);
}
