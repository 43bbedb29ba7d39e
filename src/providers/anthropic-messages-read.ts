/**
 * Reads usage and output text from Messages answers, one event or one body at a time.
 * `message_start` tells the input, and a placeholder for the output; each `message_delta` tells running totals, of
 * all fields or of the output alone. Source: https://platform.claude.com/docs/en/build-with-claude/streaming
 */
import type { Reading, UsageReport } from "./dialect.ts";
import { isRecord, type JsonRecord, listOf, parseJson, recordOf } from "./json-values.ts";
import { joinReadings, MALFORMED, NOTHING } from "./reading.ts";
import { amount, tokensOf } from "./usage.ts";

export function readMessagesEvent(data: string): Reading {
  const whole = readMessagesBody(data);
  if (!whole.malformed || !data.includes("\n")) return whole;
  return joinReadings(data.split("\n").map(readMessagesBody));
}

export function readMessagesBody(text: string): Reading {
  const trimmed = text.trim();
  if (trimmed === "") return NOTHING;
  const payload = parseJson(trimmed);
  return isRecord(payload) ? readPayload(payload) : MALFORMED;
}

function readPayload(payload: JsonRecord): Reading {
  const { type, message, delta, usage, content_block: block, error } = payload;
  switch (type) {
    case "message":
      return readMessage(payload);
    case "message_start":
      return readMessage(recordOf(message));
    case "message_delta":
      return { ...NOTHING, usage: usageOf(usage), finishedChoices: finished(recordOf(delta)) };
    case "content_block_start":
      return { ...NOTHING, text: textOfBlock(block) };
    case "content_block_delta":
      return { ...NOTHING, text: textOfDelta(recordOf(delta)) };
    case "error":
      return { ...NOTHING, error: true };
    default:
      // New kinds of events come without a new version, and older readers are asked to let them pass.
      return { ...NOTHING, error: isRecord(error), usage: usageOf(usage) };
  }
}

function readMessage(message: JsonRecord): Reading {
  const { id, content, usage } = message;
  return {
    ...NOTHING,
    usage: usageOf(usage),
    text: listOf(content).map(textOfBlock).join(""),
    answerId: typeof id === "string" && id !== "" ? id : null,
    finishedChoices: finished(message),
  };
}

function finished({ stop_reason: reason }: JsonRecord): number {
  return typeof reason === "string" ? 1 : 0;
}

/**
 * Cached input and cache writes stand beside `input_tokens`, and all three are input. One number that cannot be
 * true discredits them all. Source: https://platform.claude.com/docs/en/build-with-claude/prompt-caching
 */
function usageOf(usage: unknown): UsageReport | null {
  if (!isRecord(usage)) return null;
  const input = tokensOf(usage["input_tokens"]);
  const output = tokensOf(usage["output_tokens"]);
  const written = tokensOf(usage["cache_creation_input_tokens"]);
  const cached = tokensOf(usage["cache_read_input_tokens"]);
  const thought = tokensOf(recordOf(usage["output_tokens_details"])["thinking_tokens"]);
  if ([input, output, written, cached, thought].includes("invalid")) return null;
  if (input === "absent" && output === "absent") return null;
  const inputReport: UsageReport =
    input === "absent"
      ? {}
      : {
          inputTokens: amount(input) + amount(written) + amount(cached),
          ...(written === "absent" ? {} : { cacheWriteTokens: amount(written) }),
          ...(cached === "absent" ? {} : { cachedInputTokens: amount(cached) }),
        };
  const outputReport: UsageReport = output === "absent" ? {} : { outputTokens: amount(output) };
  const thoughtReport: UsageReport =
    thought === "absent" ? {} : { reasoningTokens: Math.min(amount(thought), amount(output)) };
  return { ...inputReport, ...outputReport, ...thoughtReport };
}

/** What the model wrote into a block. A tool's result was written by the tool, and a signature by nobody. */
function textOfBlock(block: unknown): string {
  const { type, text, thinking, name, input, content } = recordOf(block);
  if (type === "compaction") return string(content);
  const call = typeof name === "string" ? name : "";
  // A stream opens a call with an empty object and sends its members as text.
  const asked = isRecord(input) && Object.keys(input).length > 0 ? JSON.stringify(input) : "";
  return string(text) + string(thinking) + call + asked;
}

function textOfDelta({ text, thinking, partial_json: json, content }: JsonRecord): string {
  return string(text) + string(thinking) + string(json) + string(content);
}

function string(value: unknown): string {
  return typeof value === "string" ? value : "";
}
