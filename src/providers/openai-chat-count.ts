/**
 * Input tokens of a chat completions request as the model reads it: messages with their framing, tools, output
 * schema, and what is not text. Nothing but a medium's own member is taken for base64, whatever it looks like.
 */
import type { Counter } from "../tokens/counter.ts";
import { type Component, type InputCount, Tally } from "../tokens/tally.ts";
import type { ChatRequest, CountTerms } from "./dialect.ts";
import { isRecord, type JsonRecord, listOf, recordOf } from "./json-values.ts";
import { UNSEEN_TOKENS } from "./opaque.ts";
import { MEDIA } from "./openai-chat-media.ts";
import { countOutputSchema, countTools, offeredTools } from "./openai-chat-tools.ts";
import { countLabelled, countMember, countStrings, LABELS } from "./prompt-text.ts";

/** Framing of the chat format, as OpenAI's cookbook counts it. */
export const MESSAGE_TOKENS = 3;
const NAME_TOKENS = 1;
export const REPLY_PRIMER_TOKENS = 3;

/** Around each call that the model made, of a tool or by the older form; and once around several at a time. */
const TOOL_CALL_TOKENS = 4;
const FUNCTION_CALL_TOKENS = 3;
const PARALLEL_CALLS_TOKENS = 24;

/** Around a function's result, whose name stands in for its role. */
const RESULT_TOKENS = -2;

export const SYSTEM_ROLES: ReadonlySet<unknown> = new Set(["system", "developer"]);

const MESSAGE_LABELS: ReadonlySet<string> = new Set([...LABELS, "tool_call_id"]);

export function countChatInput(request: ChatRequest, counter: Counter, { images }: CountTerms): InputCount {
  const tally = new Tally(counter, images);
  const { messages, prediction } = request.members;
  const list = listOf(messages).map(recordOf);
  const first = list.findIndex(({ role }) => SYSTEM_ROLES.has(role));
  // Functions stand in the first system message, below what it says.
  const opened = offeredTools(request.members).length > 0 ? first : -1;
  for (const [index, message] of list.entries())
    countMessage(index === opened ? followed(message) : message, tally);
  tally.add("messages", REPLY_PRIMER_TOKENS);
  countContent("messages", recordOf(prediction)["content"], tally);
  countTools(request.members, tally, {
    sharesSystem: opened >= 0,
    recorded: counter.encoding === "cl100k_base",
  });
  countOutputSchema(request.members, tally);
  return tally.result();
}

function followed({ content, ...message }: JsonRecord): JsonRecord {
  return { ...message, content: typeof content === "string" ? `${content}\n` : content };
}

function countMessage(message: JsonRecord, tally: Tally): void {
  const { role } = message;
  const component: Component = SYSTEM_ROLES.has(role) ? "system" : "messages";
  tally.add(component, MESSAGE_TOKENS);
  if (role === "function") tally.add(component, RESULT_TOKENS);
  for (const entry of Object.entries(message)) {
    const [member, value] = entry;
    if (member === "content") countContent(component, value, tally);
    else if (member === "tool_calls" && Array.isArray(value)) {
      if (value.length > 1) tally.add(component, PARALLEL_CALLS_TOKENS);
      for (const call of value) {
        tally.add(component, TOOL_CALL_TOKENS);
        countLabelled(component, call, tally);
      }
    } else if (member === "audio") {
      // An earlier spoken answer, named by its id.
      if (isRecord(value)) tally.bound("audio", UNSEEN_TOKENS);
      countLabelled(component, value, tally);
    } else countMember(component, entry, MESSAGE_LABELS, tally);
    if (member === "name") tally.add(component, NAME_TOKENS);
    if (member === "function_call" && isRecord(value)) tally.add(component, FUNCTION_CALL_TOKENS);
  }
}

function countContent(component: Component, content: unknown, tally: Tally): void {
  if (!Array.isArray(content)) return countStrings(component, content, tally);
  for (const part of content) {
    if (isRecord(part)) countPart(component, part, tally);
    else countStrings(component, part, tally);
  }
}

function countPart(component: Component, part: JsonRecord, tally: Tally): void {
  for (const entry of Object.entries(part)) {
    const countMedium = MEDIA.get(entry[0]);
    if (countMedium !== undefined) countMedium(entry[1], tally);
    else countMember(component, entry, LABELS, tally);
  }
}
