/**
 * Reads usage and output text from Gemini's answers: a unary body, one event of a stream, or one element of the
 * JSON array that a stream is without `alt=sse`. Every piece may carry `usageMetadata`, and each is a running total.
 * Source: https://ai.google.dev/api/generate-content#UsageMetadata
 */
import type { Reading, UsageReport } from "./dialect.ts";
import { listed } from "./gemini-names.ts";
import { isRecord, type JsonRecord, listOf, parseJson, recordOf } from "./json-values.ts";
import { joinReadings, MALFORMED, NOTHING } from "./reading.ts";
import { amount, tokensOf } from "./usage.ts";

export function readGeminiEvent(data: string): Reading {
  const whole = readGeminiBody(data);
  if (!whole.malformed || !data.includes("\n")) return whole;
  return joinReadings(data.split("\n").map(readGeminiBody));
}

export function readGeminiBody(text: string): Reading {
  const trimmed = text.trim();
  if (trimmed === "") return NOTHING;
  const payload = parseJson(trimmed);
  if (Array.isArray(payload)) return joinReadings(payload.map(readPayload));
  return readPayload(payload);
}

function readPayload(payload: unknown): Reading {
  if (!isRecord(payload)) return MALFORMED;
  const { candidates, usageMetadata, responseId, error } = payload;
  return {
    ...NOTHING,
    usage: isRecord(usageMetadata) ? usageOf(usageMetadata) : null,
    text: listOf(candidates).map(textOfCandidate).join(""),
    answerId: typeof responseId === "string" && responseId !== "" ? responseId : null,
    finishedChoices: listOf(candidates).filter(
      (candidate) => typeof recordOf(candidate)["finishReason"] === "string",
    ).length,
    error: isRecord(error),
  };
}

/**
 * Thoughts stand beside the candidates and are output; what tools brought in stands beside the prompt and is input;
 * cached content is part of the prompt. One number that cannot be true discredits them all.
 */
function usageOf(usage: JsonRecord): UsageReport | null {
  const prompt = tokensOf(usage["promptTokenCount"]);
  const fromTools = tokensOf(usage["toolUsePromptTokenCount"]);
  const cached = tokensOf(usage["cachedContentTokenCount"]);
  const candidates = tokensOf(usage["candidatesTokenCount"]);
  const thoughts = tokensOf(usage["thoughtsTokenCount"]);
  const total = tokensOf(usage["totalTokenCount"]);
  if ([prompt, fromTools, cached, candidates, thoughts, total].includes("invalid")) return null;
  if (prompt === "absent") return null;
  const inputTokens = amount(prompt) + amount(fromTools);
  const input = {
    inputTokens,
    cachedInputTokens: Math.min(amount(cached), inputTokens),
    cacheWriteTokens: 0,
  };
  if (candidates === "absent" && thoughts === "absent" && total === "absent") return input;
  // The total holds whatever may be added to the parts later.
  const outputTokens = Math.max(amount(candidates) + amount(thoughts), amount(total) - inputTokens);
  return { ...input, outputTokens, reasoningTokens: Math.min(amount(thoughts), outputTokens) };
}

function textOfCandidate(candidate: unknown): string {
  const { content } = recordOf(candidate);
  return listed(recordOf(content)["parts"]).map(textOfPart).join("");
}

/** What the model wrote: words, thoughts, calls and code. What came of the code was written by nobody. */
function textOfPart(part: unknown): string {
  const { text, functionCall, executableCode } = recordOf(part);
  const written = typeof text === "string" ? text : "";
  const made = [functionCall, executableCode].filter(isRecord).map((value) => JSON.stringify(value));
  return written + made.join("");
}
