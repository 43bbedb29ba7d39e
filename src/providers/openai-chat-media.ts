/** What is not text in a chat message: priced by bounds, and its base64 never meets the tokenizer. */
import type { Tally } from "../tokens/tally.ts";
import { type JsonRecord, recordOf } from "./json-values.ts";
import { countMember } from "./prompt-text.ts";

/**
 * OpenAI's tile formula for its large models (GPT-4o, 4.1, 4.5): 85, and 170 for each 512-pixel tile after the
 * image was fitted into 2048 x 2048 and its shorter side to 768. At most 4 x 2 tiles remain, so for those models
 * this bounds every size; low detail is one price. It is no bound for small models, which bill an image as many
 * more of their cheaper tokens (gpt-4o-mini: 2,833 at low detail, and 5,667 more a tile). There the provider's
 * usage settles the difference afterwards.
 */
export const IMAGE_LOW_DETAIL_TOKENS = 85;
export const IMAGE_TOKENS_MAX = 85 + 8 * 170;

/**
 * Audio is read at 10 tokens a second. The length is unknown, so it is bounded by the slowest plausible byte rate:
 * 10 kB/s for PCM (16 kHz, 16 bit makes 32), 2 kB/s for whatever is compressed (speech at 16 kbit/s).
 */
const PCM_BYTES_PER_TOKEN = 1000;
const COMPRESSED_BYTES_PER_TOKEN = 200;
const PCM_FORMATS: ReadonlySet<unknown> = new Set(["wav", "pcm16"]);

/** A document's text, at the usual four bytes a token. */
const FILE_BYTES_PER_TOKEN = 4;

/** Content that is only named by an id, so that nothing of it is seen. */
export const UNSEEN_TOKENS = 4096;

/** Members of a part that hold media, as OpenAI and the servers that follow it name them. */
export const MEDIA: ReadonlyMap<string, (value: unknown, tally: Tally) => void> = new Map([
  ["image_url", countImage],
  // Billed by frames that cannot be seen from here; one image is the least, and usage settles the rest.
  ["video_url", countImage],
  ["input_audio", countAudio],
  ["audio_url", countAudio],
  ["file", countFile],
]);

/** What a medium is priced by; not read as text, however long. */
const MEDIUM_CONTENT: ReadonlySet<string> = new Set(["url", "data", "file_data"]);

const MEDIUM_LABELS: ReadonlySet<string> = new Set(["detail", "format", "file_id"]);

/** A medium is an object, or the address alone. */
export function countImage(value: unknown, tally: Tally): void {
  const image = recordOf(value);
  if (image["detail"] === "low") tally.add("images", IMAGE_LOW_DETAIL_TOKENS);
  else tally.bound("images", IMAGE_TOKENS_MAX);
  countBeside(image, tally);
}

function countAudio(value: unknown, tally: Tally): void {
  const audio = recordOf(value);
  const data = audio["data"] ?? dataUriOf(audio["url"] ?? value);
  const bytesPerToken = PCM_FORMATS.has(audio["format"]) ? PCM_BYTES_PER_TOKEN : COMPRESSED_BYTES_PER_TOKEN;
  tally.bound(
    "audio",
    typeof data === "string" ? Math.ceil(decodedBytes(data) / bytesPerToken) : UNSEEN_TOKENS,
  );
  countBeside(audio, tally);
}

export function countFile(value: unknown, tally: Tally): void {
  const file = recordOf(value);
  const { file_data: data } = file;
  tally.bound(
    "files",
    typeof data === "string" ? Math.ceil(decodedBytes(data) / FILE_BYTES_PER_TOKEN) : UNSEEN_TOKENS,
  );
  countBeside(file, tally);
}

/** What stands beside a medium's own members: a file's name, or what is new. */
function countBeside(medium: JsonRecord, tally: Tally): void {
  for (const entry of Object.entries(medium)) {
    const [member, value] = entry;
    if (typeof value === "string" && MEDIUM_CONTENT.has(member)) continue;
    countMember("messages", entry, MEDIUM_LABELS, tally);
  }
}

function isDataUri(text: string): boolean {
  return /^data:[^,]{0,200};base64,/i.test(text);
}

function dataUriOf(address: unknown): string | null {
  return typeof address === "string" && isDataUri(address) ? address : null;
}

/** Bytes behind base64, with or without the head of a data URI. */
function decodedBytes(base64: string): number {
  const head = isDataUri(base64) ? base64.indexOf(",") + 1 : 0;
  return Math.ceil(((base64.length - head) * 3) / 4);
}
