/**
 * Input tokens of a Messages request: system, messages with every kind of content block, tools, output schema.
 * What is said before the answer begins (a prefill, a tool's result, earlier thoughts) is input like the rest.
 */
import type { Counter } from "../tokens/counter.ts";
import { type Component, type InputCount, Tally } from "../tokens/tally.ts";
import { countSource, SOURCE_LABELS } from "./anthropic-media.ts";
import { countAnthropicSchema, countAnthropicTools } from "./anthropic-tools.ts";
import type { ChatRequest, CountTerms } from "./dialect.ts";
import { isRecord, type JsonRecord, listOf } from "./json-values.ts";
import { countOpaque, UNSEEN_TOKENS } from "./opaque.ts";
import { countMember, countStrings, LABELS } from "./prompt-text.ts";

/**
 * Framing is not published. "Hello, Claude" under "You are a scientist" is 14 tokens by the provider's count, six
 * or seven more than its words: https://platform.claude.com/docs/en/build-with-claude/token-counting
 */
const REQUEST_TOKENS = 4;
const MESSAGE_TOKENS = 3;

const BLOCK_LABELS: ReadonlySet<string> = new Set([...LABELS, "tool_use_id", "is_error"]);

/** Members of a block that are encrypted: signatures of thoughts, thoughts withheld, results of a search. */
const OPAQUE: ReadonlySet<string> = new Set(["signature", "data", "encrypted_content", "encrypted_index"]);

export function countAnthropicInput(
  request: ChatRequest,
  counter: Counter,
  { images }: CountTerms,
): InputCount {
  const tally = new Tally(counter, images);
  const { members } = request;
  const model = request.model.toLowerCase();
  tally.add("messages", REQUEST_TOKENS);
  countContent("system", members["system"], tally);
  for (const message of listOf(members["messages"])) countMessage(message, tally);
  countAnthropicTools(members, model, tally);
  countAnthropicSchema(members, tally);
  return tally.result();
}

function countMessage(message: unknown, tally: Tally): void {
  tally.add("messages", MESSAGE_TOKENS);
  if (!isRecord(message)) return countStrings("messages", message, tally);
  for (const entry of Object.entries(message)) {
    if (entry[0] === "content") countContent("messages", entry[1], tally);
    else countMember("messages", entry, LABELS, tally);
  }
}

function countContent(component: Component, content: unknown, tally: Tally): void {
  if (Array.isArray(content)) for (const block of content) countContent(component, block, tally);
  else if (isRecord(content)) countBlock(component, content, tally);
  else countStrings(component, content, tally);
}

function countBlock(component: Component, block: JsonRecord, tally: Tally): void {
  // A file for the provider's own tools, named by an id.
  if (block["type"] === "container_upload") tally.bound("files", UNSEEN_TOKENS);
  for (const entry of Object.entries(block)) {
    const [member, value] = entry;
    if (member === "content") countContent(component, value, tally);
    else if (member === "source" && isRecord(value)) {
      const priced = countSource(block["type"], value, tally);
      for (const beside of Object.entries(value)) {
        if (beside[0] === priced) continue;
        if (beside[0] === "content") countContent(component, beside[1], tally);
        else countMember(component, beside, SOURCE_LABELS, tally);
      }
    } else if (member === "input") tally.text(component, JSON.stringify(value));
    else if (OPAQUE.has(member) && typeof value === "string") countOpaque(component, value, tally);
    else countMember(component, entry, BLOCK_LABELS, tally);
  }
}
