/** Messages requests for the tests of the Anthropic dialect. */
import { anthropicMessages } from "../../src/providers/anthropic-messages.ts";
import type { ChatRequest } from "../../src/providers/dialect.ts";
import { targetOf } from "./endpoints.ts";

export const CLAUDE = "claude-sonnet-4-5";

export function messagesBody(members: object = {}): string {
  return JSON.stringify({ model: CLAUDE, messages: [{ role: "user", content: "hi" }], ...members });
}

export function messagesRequest(members: object = {}, path = "/v1/messages"): ChatRequest {
  const described = anthropicMessages.describe(messagesBody(members), targetOf(path));
  if (!described.ok) throw new Error(described.malformed.message);
  return described.request;
}
