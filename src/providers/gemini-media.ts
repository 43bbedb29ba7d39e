/** What is not text in a Gemini part: priced by bounds, and its base64 never meets the tokenizer. */
import type { Tally } from "../tokens/tally.ts";
import { camelCase, memberOf } from "./gemini-names.ts";
import type { JsonRecord } from "./json-values.ts";
import { decodedBytes, UNSEEN_TOKENS } from "./opaque.ts";
import { countMember } from "./prompt-text.ts";

/**
 * Sound is read at 32 tokens a second, and video at 263 without it. The length is unknown, so the slowest plausible
 * byte rate bounds it: 2 kB/s for compressed speech, 10 kB/s for PCM, 30 kB/s for video.
 */
const COMPRESSED_AUDIO_BYTES_PER_TOKEN = 2_000 / 32;
const PCM_BYTES_PER_TOKEN = 10_000 / 32;
const VIDEO_BYTES_PER_TOKEN = 30_000 / (263 + 32);

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
  else if (typeof data === "string") countBytes(kind, decodedBytes(data), tally);
  else tally.bound("files", UNSEEN_TOKENS);
  for (const entry of Object.entries(medium)) {
    const [member, value] = entry;
    const isContent = member === "data" || camelCase(member) === "fileUri";
    if (!isContent || typeof value !== "string") countMember("messages", entry, LABELS, tally);
  }
}

function countBytes(kind: string, bytes: number, tally: Tally): void {
  const tokens = (bytesPerToken: number) => Math.ceil(bytes / bytesPerToken);
  if (/^audio\/(wav|x-wav|pcm|l16)/.test(kind)) tally.bound("audio", tokens(PCM_BYTES_PER_TOKEN));
  else if (kind.startsWith("audio/")) tally.bound("audio", tokens(COMPRESSED_AUDIO_BYTES_PER_TOKEN));
  else if (kind.startsWith("video/")) tally.bound("files", tokens(VIDEO_BYTES_PER_TOKEN));
  else if (kind === "application/pdf")
    tally.bound("files", Math.min(DOCUMENT_TOKENS_MAX, tokens(DOCUMENT_BYTES_PER_TOKEN)));
  else tally.bound("files", tokens(TEXT_BYTES_PER_TOKEN));
}
