/** What is not text in a chat message: priced by bounds, and its base64 never meets the tokenizer. */
import { isDataUri } from "../tokens/media/base64-bytes.ts";
import type { Tally } from "../tokens/tally.ts";
import { type JsonRecord, recordOf } from "./json-values.ts";
import { decodedBytes, UNSEEN_TOKENS } from "./opaque.ts";
import { countMember } from "./prompt-text.ts";

/** A tenth of a second is a token: https://platform.openai.com/docs/guides/realtime-costs */
const AUDIO_TOKENS_PER_SECOND = 10;

/** A document's text, at the usual four bytes a token. */
const FILE_BYTES_PER_TOKEN = 4;

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

/** A medium is an object, or the address alone. Only an image that is sent along shows its size. */
export function countImage(value: unknown, tally: Tally): void {
  const image = recordOf(value);
  tally.image(image["detail"], dataUriOf(image["url"] ?? value));
  countBeside(image, tally);
}

function countAudio(value: unknown, tally: Tally): void {
  const audio = recordOf(value);
  const data = audio["data"] ?? dataUriOf(audio["url"] ?? value);
  const { format } = audio;
  if (typeof data !== "string") tally.bound("audio", UNSEEN_TOKENS);
  else tally.audio(AUDIO_TOKENS_PER_SECOND, data, typeof format === "string" ? format : "");
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

function dataUriOf(address: unknown): string | null {
  return typeof address === "string" && isDataUri(address) ? address : null;
}
