/**
 * Reads usage and output text from Responses answers. Deltas bring the text; events that end a part repeat it. The
 * event that ends the answer, however it ended, carries the answer's figures:
 * https://platform.openai.com/docs/api-reference/responses-streaming
 */
import type { Reading, Usage } from "./dialect.ts";
import { isRecord, type JsonRecord, listOf, parseJson, recordOf } from "./json-values.ts";
import { joinReadings, MALFORMED, NOTHING } from "./reading.ts";
import { amount, tokensOf } from "./usage.ts";

/** No status but these is an end; an answer in the background is queued and in progress before. */
const ENDED: ReadonlySet<unknown> = new Set(["completed", "incomplete", "failed", "cancelled"]);

/** Sound in base64, whose words come beside it. */
const NOT_TEXT = "response.audio.delta";

export function readResponsesEvent(data: string): Reading {
  const whole = readPayload(data, readEvent);
  if (!whole.malformed || !data.includes("\n")) return whole;
  // Two events glued into one: one of the lines may still be whole.
  return joinReadings(data.split("\n").map((line) => readPayload(line, readEvent)));
}

export function readResponsesBody(text: string): Reading {
  return readPayload(text, readWhole);
}

function readPayload(text: string, read: (payload: JsonRecord) => Reading): Reading {
  const trimmed = text.trim();
  if (trimmed === "" || trimmed === "[DONE]") return NOTHING;
  const payload = parseJson(trimmed);
  return isRecord(payload) ? read(payload) : MALFORMED;
}

function readEvent(event: JsonRecord): Reading {
  const { type, response, delta, item, error, object } = event;
  if (isRecord(response)) return readAnswer(response, "");
  // From a server that does not stream.
  if (object === "response") return readWhole(event);
  if (type === "error" || isFailure(error)) return { ...NOTHING, error: true };
  if (type === "response.output_item.added") return { ...NOTHING, text: textOf(recordOf(item)["name"]) };
  const addsText = typeof type === "string" && type.endsWith(".delta") && type !== NOT_TEXT;
  return addsText ? { ...NOTHING, text: textOf(delta) } : NOTHING;
}

const readWhole = (answer: JsonRecord): Reading => readAnswer(answer, textOfOutput(answer["output"]));

/** A response object, at the beginning or the end of an answer. */
function readAnswer(response: JsonRecord, text: string): Reading {
  const { id, status, usage, error } = response;
  return {
    ...NOTHING,
    usage: isRecord(usage) ? usageOf(usage) : null,
    text,
    answerId: typeof id === "string" && id !== "" ? id : null,
    finishedChoices: ENDED.has(status) ? 1 : 0,
    error: status === "failed" || isFailure(error),
  };
}

const isFailure = (error: unknown): boolean => isRecord(error) || (typeof error === "string" && error !== "");

/** One number that cannot be true discredits them all: the local count is used instead. */
function usageOf(usage: JsonRecord): Usage | null {
  const { input_tokens_details: inputDetails, output_tokens_details: outputDetails } = usage;
  const input = tokensOf(usage["input_tokens"]);
  const output = tokensOf(usage["output_tokens"]);
  const cached = tokensOf(recordOf(inputDetails)["cached_tokens"]);
  const written = tokensOf(recordOf(inputDetails)["cache_write_tokens"]);
  const reasoning = tokensOf(recordOf(outputDetails)["reasoning_tokens"]);
  if ([cached, written, reasoning].includes("invalid")) return null;
  if (typeof input !== "number" || typeof output !== "number") return null;
  const cachedInputTokens = Math.min(amount(cached), input);
  return {
    inputTokens: input,
    outputTokens: output,
    cachedInputTokens,
    cacheWriteTokens: Math.min(amount(written), input - cachedInputTokens),
    reasoningTokens: Math.min(amount(reasoning), output),
  };
}

/** What the items of a whole answer say: messages, summaries of thoughts, calls. */
function textOfOutput(output: unknown): string {
  return listOf(output)
    .flatMap((item) => {
      const { content, summary, name, arguments: callArguments, input, code } = recordOf(item);
      return [...listOf(summary), ...listOf(content)]
        .map((part) => textOf(recordOf(part)["text"]) + textOf(recordOf(part)["refusal"]))
        .concat([name, callArguments, input, code].map(textOf));
    })
    .join("");
}

/** Some deltas are objects: their JSON is what was generated. */
function textOf(value: unknown): string {
  if (typeof value === "string") return value;
  return isRecord(value) ? JSON.stringify(value) : "";
}
