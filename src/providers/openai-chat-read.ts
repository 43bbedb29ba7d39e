/**
 * Reads usage and output text from chat completions answers, one event or one body at a time.
 * Usage is looked for before anything else and in every payload: servers send it in a last chunk without choices,
 * in the last chunk with choices, or as a running total in all of them. Nothing here throws.
 */
import type { Reading, Usage } from "./dialect.ts";
import { isRecord, type JsonRecord, listOf, parseJson, recordOf } from "./json-values.ts";
import { joinReadings, MALFORMED, NOTHING } from "./reading.ts";
import { amount, tokensOf } from "./usage.ts";

export function readChatEvent(data: string): Reading {
  const whole = readPayload(data);
  if (!whole.malformed || !data.includes("\n")) return whole;
  // Two chunks glued into one event: one of the lines may still be whole.
  return joinReadings(data.split("\n").map(readPayload));
}

export function readChatBody(text: string): Reading {
  return readPayload(text);
}

function readPayload(text: string): Reading {
  const trimmed = text.trim();
  if (trimmed === "" || trimmed === "[DONE]") return NOTHING;
  const payload = parseJson(trimmed);
  if (!isRecord(payload)) return MALFORMED;
  const { usage, choices, error, id } = payload;
  const failed = isRecord(error) || (typeof error === "string" && error !== "");
  return {
    usage: isRecord(usage) ? usageOf(usage) : null,
    text: listOf(choices).map(textOfChoice).join(""),
    answerId: typeof id === "string" && id !== "" ? id : null,
    finishedChoices: listOf(choices).filter((choice) => typeof recordOf(choice)["finish_reason"] === "string")
      .length,
    error: failed,
    usageOnly: isRecord(usage) && Array.isArray(choices) && choices.length === 0 && !failed,
    malformed: false,
  };
}

/** One number that cannot be true discredits them all: the local count is used instead. */
function usageOf(usage: JsonRecord): Usage | null {
  const { prompt_tokens_details: promptDetails, completion_tokens_details: completionDetails } = usage;
  const input = tokensOf(usage["prompt_tokens"]);
  const completion = tokensOf(usage["completion_tokens"]);
  const total = tokensOf(usage["total_tokens"]);
  const cached = tokensOf(recordOf(promptDetails)["cached_tokens"]);
  const reasoning = tokensOf(recordOf(completionDetails)["reasoning_tokens"]);
  if ([input, completion, total, cached, reasoning].includes("invalid")) return null;
  if (typeof input !== "number" || (completion === "absent" && total === "absent")) return null;
  // Some servers leave reasoning out of the completion and have it in the total; the larger is what they bill.
  const output = Math.max(amount(completion), amount(total) - input);
  return {
    inputTokens: input,
    outputTokens: output,
    cachedInputTokens: Math.min(amount(cached), input),
    cacheWriteTokens: 0,
    reasoningTokens: Math.min(amount(reasoning), output),
  };
}

/** A streamed choice has a delta, a unary one a message, a legacy one its text. */
function textOfChoice(choice: unknown): string {
  const { delta, message, text } = recordOf(choice);
  return textOf(text) + textOfMessage(recordOf(delta)) + textOfMessage(recordOf(message));
}

function textOfMessage(message: JsonRecord): string {
  const { content, refusal, reasoning, reasoning_content: reasoningContent, audio } = message;
  const { tool_calls: toolCalls, function_call: functionCall } = message;
  return [
    // Servers that send reasoning under both names send the same text twice.
    textOf(reasoning) || textOf(reasoningContent),
    textOf(content),
    textOf(refusal),
    textOf(recordOf(audio)["transcript"]),
    ...listOf(toolCalls).map((call) => textOfCall(recordOf(call)["function"])),
    textOfCall(functionCall),
  ].join("");
}

function textOfCall(call: unknown): string {
  const { name, arguments: callArguments } = recordOf(call);
  return textOf(name) + textOf(callArguments);
}

/** A string, or a list of parts that have one. */
function textOf(value: unknown): string {
  if (typeof value === "string") return value;
  return listOf(value)
    .map((part) => recordOf(part)["text"])
    .filter((text) => typeof text === "string")
    .join("");
}
