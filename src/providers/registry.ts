/** The only file that names the adapters: which dialect speaks on which path of a tenant. */
import type { Dialect } from "./dialect.ts";
import { openaiChat } from "./openai-chat.ts";
import { openaiEmbeddings } from "./openai-embeddings.ts";
import { openaiResponses } from "./openai-responses.ts";

/** Paths below `/t/{tenant}` that generate, and are therefore metered. Any other is refused. */
export const GENERATING_PATHS: Readonly<Record<string, Dialect>> = {
  "/v1/chat/completions": openaiChat,
  "/v1/responses": openaiResponses,
  "/v1/embeddings": openaiEmbeddings,
};

/** In whose words to say no on a path that no dialect serves. */
export function dialectNear(path: string): Dialect | null {
  return path.startsWith("/v1") ? openaiChat : null;
}

/** The dialects that a provider's answers may be read in, by what the policy calls it. */
export const DIALECTS: Readonly<Record<string, readonly Dialect[]>> = {
  openai: [openaiChat, openaiResponses, openaiEmbeddings],
};
