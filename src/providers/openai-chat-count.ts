/**
 * Input tokens of a chat completions request as the model reads it: messages with their framing, tools, output
 * schema, and what is not text. Every string of a message counts, known or not, except the few that never reach
 * the model; images, audio and files are priced by bounds, and their base64 never meets the tokenizer. Nothing else
 * is taken for base64, whatever it looks like.
 */
import type { CountBudget, Counter } from "../tokens/counter.ts";
import type { ChatRequest, InputCount } from "./dialect.ts";
import { isRecord, type JsonRecord, listOf, recordOf } from "./json-values.ts";

/** Framing of the chat format, as OpenAI's cookbook counts it. */
const MESSAGE_TOKENS = 3;
const NAME_TOKENS = 1;
const REPLY_PRIMER_TOKENS = 3;

/** Tools are rendered into the prompt in a form of the provider's own; the JSON of a schema plus this is above it. */
const TOOLS_TOKENS = 12;
const TOOL_TOKENS = 8;

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
const UNSEEN_TOKENS = 4096;

/** Members that say how to read a message, a part or a call, and are not read by the model themselves. */
const LABELS: ReadonlySet<string> = new Set(["type", "id", "index", "cache_control"]);

/** No real label is longer. What is longer may be a prompt that somebody hopes is not counted. */
const LABEL_UNITS_MAX = 64;

/** Members of a part that hold media, as OpenAI and the servers that follow it name them. */
const MEDIA: ReadonlyMap<string, (value: unknown, tally: Tally) => void> = new Map([
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

type Component = "messages" | "tools" | "outputSchema" | "images" | "audio" | "files";

export function countChatInput(request: ChatRequest, counter: Counter): InputCount {
  const tally = new Tally(counter);
  const { messages, prediction } = request.members;
  for (const message of listOf(messages)) countMessage(recordOf(message), tally);
  tally.add("messages", REPLY_PRIMER_TOKENS);
  countContent(recordOf(prediction)["content"], tally);
  countTools(request.members, tally);
  countOutputSchema(request.members, tally);
  return tally.result();
}

class Tally {
  readonly #counter: Counter;
  readonly #budget: CountBudget = { spentSteps: 0 };
  readonly #components: Record<Component, number> = {
    messages: 0,
    tools: 0,
    outputSchema: 0,
    images: 0,
    audio: 0,
    files: 0,
  };
  #bounded = false;

  constructor(counter: Counter) {
    this.#counter = counter;
  }

  add(component: Component, tokens: number): void {
    this.#components[component] += tokens;
  }

  bound(component: Component, tokens: number): void {
    this.add(component, tokens);
    this.#bounded = true;
  }

  text(component: Component, text: string): void {
    const { tokens, bounded } = this.#counter.count(text, this.#budget);
    this.add(component, tokens);
    this.#bounded ||= bounded;
  }

  result(): InputCount {
    const components = { ...this.#components };
    const inputTokens = Object.values(components).reduce((sum, tokens) => sum + tokens, 0);
    return { inputTokens, components, bounded: this.#bounded };
  }
}

function countMessage(message: JsonRecord, tally: Tally): void {
  tally.add("messages", MESSAGE_TOKENS);
  for (const [member, value] of Object.entries(message)) {
    if (member === "content") countContent(value, tally);
    else if (member === "tool_calls" && Array.isArray(value)) {
      for (const call of value) countLabelled(call, tally);
    } else if (member === "audio") {
      // An earlier spoken answer, named by its id.
      if (isRecord(value)) tally.bound("audio", UNSEEN_TOKENS);
      countLabelled(value, tally);
    } else countMember(member, value, LABELS, tally);
    if (member === "name") tally.add("messages", NAME_TOKENS);
  }
}

function countContent(content: unknown, tally: Tally): void {
  if (!Array.isArray(content)) return countStrings(content, tally);
  for (const part of content) {
    if (isRecord(part)) countPart(part, tally);
    else countStrings(part, tally);
  }
}

function countPart(part: JsonRecord, tally: Tally): void {
  for (const [member, value] of Object.entries(part)) {
    const countMedium = MEDIA.get(member);
    if (countMedium !== undefined) countMedium(value, tally);
    else countMember(member, value, LABELS, tally);
  }
}

/** A medium is an object, or the address alone. */
function countImage(value: unknown, tally: Tally): void {
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

function countFile(value: unknown, tally: Tally): void {
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
  for (const [member, value] of Object.entries(medium)) {
    if (typeof value === "string" && MEDIUM_CONTENT.has(member)) continue;
    countMember(member, value, MEDIUM_LABELS, tally);
  }
}

/** A value at a level where labels are known to stand. */
function countLabelled(value: unknown, tally: Tally): void {
  if (!isRecord(value)) countStrings(value, tally);
  else for (const [member, inner] of Object.entries(value)) countMember(member, inner, LABELS, tally);
}

function countMember(member: string, value: unknown, labels: ReadonlySet<string>, tally: Tally): void {
  if (labels.has(member) && lengthOf(value) <= LABEL_UNITS_MAX) return;
  countName(member, tally);
  countStrings(value, tally);
}

function lengthOf(value: unknown): number {
  return typeof value === "string" ? value.length : JSON.stringify(value).length;
}

/** Every string below a member the format does not name here: tool calls, refusals, reasoning, and what is new. */
function countStrings(value: unknown, tally: Tally): void {
  if (typeof value === "string") tally.text("messages", value);
  else if (Array.isArray(value)) for (const item of value) countStrings(item, tally);
  else {
    for (const [member, inner] of Object.entries(recordOf(value))) {
      countName(member, tally);
      countStrings(inner, tally);
    }
  }
}

/** Names are part of the format and do not count, unless one is longer than any format's. */
function countName(member: string, tally: Tally): void {
  if (member.length > LABEL_UNITS_MAX) tally.text("messages", member);
}

/** Schemas count as JSON with all their members: the model is shown names, types, enums and defaults alike. */
function countTools(members: JsonRecord, tally: Tally): void {
  const { tools, functions, tool_choice: toolChoice, function_call: functionCall } = members;
  const offered = [...listOf(tools), ...listOf(functions)];
  if (offered.length > 0) tally.add("tools", TOOLS_TOKENS);
  for (const tool of offered) {
    tally.add("tools", TOOL_TOKENS);
    tally.text("tools", JSON.stringify(tool));
  }
  for (const choice of [toolChoice, functionCall])
    if (isRecord(choice)) tally.text("tools", JSON.stringify(choice));
}

function countOutputSchema({ response_format: format }: JsonRecord, tally: Tally): void {
  if (!isRecord(format) || format["type"] === "text" || format["type"] === "json_object") return;
  tally.text("outputSchema", JSON.stringify(format["json_schema"] ?? format));
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
