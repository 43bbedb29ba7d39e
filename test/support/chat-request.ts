/** Chat completions requests for the tests of the OpenAI dialect. */
import type { ChatRequest } from "../../src/providers/dialect.ts";
import { openaiChat } from "../../src/providers/openai-chat.ts";
import { CHAT_PATH, targetOf } from "./endpoints.ts";

export const MESSAGES = [{ role: "user", content: "hi" }];

export function body(members: Readonly<Record<string, unknown>> = {}): string {
  return JSON.stringify({ model: "gpt-4o-mini", messages: MESSAGES, ...members });
}

export function requestOf(text: string): ChatRequest {
  const described = openaiChat.describe(text, targetOf(CHAT_PATH));
  if (!described.ok) throw new Error(described.malformed.message);
  return described.request;
}
