/**
 * Input tokens of a chat completions request as the model reads it: messages with their framing, tools, output
 * schema, and what is not text. Nothing but a medium's own member is taken for base64, whatever it looks like.
 */
import type { Counter } from "../tokens/counter.ts";
import { type InputCount, Tally } from "../tokens/tally.ts";
import type { ChatRequest, CountTerms } from "./dialect.ts";
import { isRecord, type JsonRecord, listOf, recordOf } from "./json-values.ts";
import { UNSEEN_TOKENS } from "./opaque.ts";
import { MEDIA } from "./openai-chat-media.ts";
import { countOutputSchema, countTools } from "./openai-chat-tools.ts";
import { countLabelled, countMember, countStrings, LABELS } from "./prompt-text.ts";

/** Framing of the chat format, as OpenAI's cookbook counts it. */
const MESSAGE_TOKENS = 3;
const NAME_TOKENS = 1;
const REPLY_PRIMER_TOKENS = 3;

export function countChatInput(request: ChatRequest, counter: Counter, { images }: CountTerms): InputCount {
  const tally = new Tally(counter, images);
  const { messages, prediction } = request.members;
  for (const message of listOf(messages)) countMessage(recordOf(message), tally);
  tally.add("messages", REPLY_PRIMER_TOKENS);
  countContent(recordOf(prediction)["content"], tally);
  countTools(request.members, tally);
  countOutputSchema(request.members, tally);
  return tally.result();
}

function countMessage(message: JsonRecord, tally: Tally): void {
  tally.add("messages", MESSAGE_TOKENS);
  for (const entry of Object.entries(message)) {
    const [member, value] = entry;
    if (member === "content") countContent(value, tally);
    else if (member === "tool_calls" && Array.isArray(value)) {
      for (const call of value) countLabelled("messages", call, tally);
    } else if (member === "audio") {
      // An earlier spoken answer, named by its id.
      if (isRecord(value)) tally.bound("audio", UNSEEN_TOKENS);
      countLabelled("messages", value, tally);
    } else countMember("messages", entry, LABELS, tally);
    if (member === "name") tally.add("messages", NAME_TOKENS);
  }
}

function countContent(content: unknown, tally: Tally): void {
  if (!Array.isArray(content)) return countStrings("messages", content, tally);
  for (const part of content) {
    if (isRecord(part)) countPart(part, tally);
    else countStrings("messages", part, tally);
  }
}

function countPart(part: JsonRecord, tally: Tally): void {
  for (const entry of Object.entries(part)) {
    const countMedium = MEDIA.get(entry[0]);
    if (countMedium !== undefined) countMedium(entry[1], tally);
    else countMember("messages", entry, LABELS, tally);
  }
}
