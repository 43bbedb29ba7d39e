/**
 * Input tokens of a Responses request: the items with the framing that chat messages have, tools, the output's
 * schema, what is not text, and an allowance for each part that the request only names.
 */
import type { Counter } from "../tokens/counter.ts";
import { type Component, type InputCount, Tally } from "../tokens/tally.ts";
import type { ChatRequest, CountTerms } from "./dialect.ts";
import { isRecord, type JsonRecord, listOf, recordOf } from "./json-values.ts";
import { countOpaque } from "./opaque.ts";
import { MESSAGE_TOKENS, REPLY_PRIMER_TOKENS, SYSTEM_ROLES } from "./openai-chat-count.ts";
import { countFile, countImage, MEDIA } from "./openai-chat-media.ts";
import { countOutputSchema, countTools, type ToolsContext } from "./openai-chat-tools.ts";
import { countMember, countStrings, LABELS } from "./prompt-text.ts";

/**
 * What every request has beside its items: by the API reference's examples, which report 36 and 37 tokens for prompts
 * that are 19 of chat completions'. https://developers.openai.com/api/reference/resources/responses/methods/create
 */
const REQUEST_TOKENS = 18;

const ITEM_LABELS: ReadonlySet<string> = new Set([...LABELS, "status"]);

/** Members of an item or a part that hold text, or parts that may be more than text. */
const CONTENT: ReadonlySet<string> = new Set(["content", "summary", "output", "outputs"]);

/** Tools whose calls the caller answers: nothing reaches the prompt that the caller does not send. */
const CALLERS_TOOLS: ReadonlySet<unknown> = new Set(["function", "custom", "namespace"]);

/** Whether they share a system message is not known of this endpoint; the more counts. */
const TOOLS_CONTEXT: ToolsContext = { sharesSystem: false, recorded: false };

/** Strings are encrypted, and their size is all that can be known. */
const ENCRYPTED = "encrypted_content";

export function countResponsesInput(
  request: ChatRequest,
  counter: Counter,
  { images, unseenInputTokens }: CountTerms,
): InputCount {
  const { members } = request;
  const { instructions, input, prompt } = members;
  const tally = new Tally(counter, images);
  if (instructions !== undefined && instructions !== null) {
    tally.add("system", MESSAGE_TOKENS);
    tally.text("system", "developer");
    countStrings("system", instructions, tally);
  }
  // A string is short for one message of the user's.
  const items = typeof input === "string" ? [{ role: "user", content: input }] : listOf(input);
  for (const item of items) countItem(recordOf(item), tally);
  tally.add("messages", REQUEST_TOKENS + REPLY_PRIMER_TOKENS);
  for (const value of Object.values(recordOf(recordOf(prompt)["variables"])))
    countContent("messages", [value], tally);
  countTools(asInChat(members), tally, TOOLS_CONTEXT);
  countOutputSchema({ response_format: formatOf(members) }, tally);
  for (let unseen = unseenParts(members, items); unseen > 0; unseen -= 1)
    tally.bound("messages", unseenInputTokens);
  return tally.result();
}

/** Sources of input that the provider fetches by itself. All items of the input that are only referred to are one. */
function unseenParts({ tools, ...members }: JsonRecord, items: readonly unknown[]): number {
  const named = ["previous_response_id", "conversation", "prompt"].filter(
    (name) => (members[name] ?? null) !== null,
  );
  const refers = items.some((item) => recordOf(item)["type"] === "item_reference");
  const hosted = listOf(tools).some((tool) => !CALLERS_TOOLS.has(recordOf(tool)["type"]));
  return named.length + Number(refers) + Number(hosted);
}

function countItem(item: JsonRecord, tally: Tally): void {
  const component: Component = SYSTEM_ROLES.has(item["role"]) ? "system" : "messages";
  tally.add(component, MESSAGE_TOKENS);
  for (const entry of Object.entries(item)) countItemMember(component, item, entry, tally);
}

function countItemMember(
  component: Component,
  item: JsonRecord,
  entry: readonly [string, unknown],
  tally: Tally,
): void {
  const [member, value] = entry;
  if (CONTENT.has(member)) countContent(component, value, tally);
  else if (member === ENCRYPTED && typeof value === "string") countOpaque(component, value, tally);
  // Schemas count with the names in them, wherever they are offered.
  else if (member === "tools") countTools({ tools: listOf(value).map(nested) }, tally, TOOLS_CONTEXT);
  // A picture that was made earlier, in base64.
  else if (member === "result" && item["type"] === "image_generation_call" && typeof value === "string")
    tally.image(undefined, value);
  else countMember(component, entry, ITEM_LABELS, tally);
}

function countContent(component: Component, content: unknown, tally: Tally): void {
  if (Array.isArray(content)) for (const part of content) countPart(component, part, tally);
  else if (isRecord(content)) countPart(component, content, tally);
  else countStrings(component, content, tally);
}

function countPart(component: Component, part: unknown, tally: Tally): void {
  if (!isRecord(part)) return countStrings(component, part, tally);
  const { type } = part;
  // Their members stand beside one another here, and within one in chat completions.
  if (IMAGES.has(type)) return countImage(mediumOf(part), tally);
  if (type === "input_file") return countFile(mediumOf(part), tally);
  for (const entry of Object.entries(part)) {
    const countMedium = MEDIA.get(entry[0]);
    if (countMedium !== undefined) countMedium(entry[1], tally);
    else countItemMember(component, part, entry, tally);
  }
}

function mediumOf(part: JsonRecord): JsonRecord {
  const members = Object.entries(part).filter(([member]) => member !== "type");
  return Object.fromEntries(
    members.map(([member, value]) => [ADDRESSES.has(member) ? "url" : member, value]),
  );
}

/** What is shown to the model, what its computer shows, and what its code drew. */
const IMAGES: ReadonlySet<unknown> = new Set(["input_image", "computer_screenshot", "image"]);

const ADDRESSES: ReadonlySet<string> = new Set(["image_url", "file_url"]);

/** Functions and choices of them are flat here; the provider renders them as it does those of chat completions. */
function asInChat({ tools, tool_choice: toolChoice }: JsonRecord): JsonRecord {
  return { tools: listOf(tools).map(nested), tool_choice: toolChoice };
}

function nested(tool: unknown): unknown {
  if (!isRecord(tool) || tool["type"] !== "function") return tool;
  const { type, ...definition } = tool;
  return { type, function: definition };
}

function formatOf({ text }: JsonRecord): unknown {
  const { format } = recordOf(text);
  if (!isRecord(format) || format["type"] !== "json_schema") return format;
  const { type, ...schema } = format;
  return { type, json_schema: schema };
}
