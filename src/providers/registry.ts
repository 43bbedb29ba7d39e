/** The only file that names the adapters: which dialect speaks on which path of a tenant. */
import type { ProviderPolicy } from "../policy/schema.ts";
import { anthropicMessages } from "./anthropic-messages.ts";
import type { Dialect, Operation, RequestTarget } from "./dialect.ts";
import { gemini } from "./gemini.ts";
import { openaiChat } from "./openai-chat.ts";
import { openaiEmbeddings } from "./openai-embeddings.ts";
import { openaiResponses } from "./openai-responses.ts";

/** Where a request goes in, and who reads it. */
export interface Endpoint {
  readonly dialect: Dialect;
  readonly target: RequestTarget;
}

/** Paths below `/t/{tenant}` that reach a provider. Any other is refused: nothing is proxied unmetered. */
const PATHS: readonly (readonly [path: RegExp, dialect: Dialect, operation: Operation])[] = [
  [/^\/v1\/chat\/completions$/, openaiChat, "generate"],
  [/^\/v1\/responses$/, openaiResponses, "generate"],
  [/^\/v1\/responses\/input_tokens$/, openaiResponses, "count"],
  [/^\/v1\/embeddings$/, openaiEmbeddings, "generate"],
  [/^\/v1\/messages$/, anthropicMessages, "generate"],
  [/^\/v1\/messages\/count_tokens$/, anthropicMessages, "count"],
  [geminiPath("generateContent"), gemini, "generate"],
  [geminiPath("streamGenerateContent"), gemini, "stream"],
  [geminiPath("countTokens"), gemini, "count"],
];

/** Clients write the colon as it is or encoded; the provider takes either. */
function geminiPath(verb: string): RegExp {
  return new RegExp(`^/v1(?:alpha|beta)?/models/(?<model>[^/:]+?)(?::|%3[aA])${verb}$`);
}

/** By the path as it was written. Null where no dialect is served. */
export function endpointAt(path: string, query: URLSearchParams): Endpoint | null {
  for (const [pattern, dialect, operation] of PATHS) {
    const match = pattern.exec(path);
    if (match === null) continue;
    const name = match.groups?.["model"];
    const model = name === undefined ? null : decodeURIComponent(name);
    return { dialect, target: { path, query, operation, model } };
  }
  return null;
}

/** In whose words to say no on a path that no dialect serves. */
export function dialectNear(path: string): Dialect | null {
  if (path.startsWith("/v1/messages")) return anthropicMessages;
  if (/^\/v1(alpha|beta)\/|^\/v1\/models\/.*(:|%3a)/i.test(path)) return gemini;
  return path.startsWith("/v1") ? openaiChat : null;
}

/** The dialects that a provider speaks, by what the policy calls it. */
export const DIALECTS: Readonly<Record<ProviderPolicy["dialect"], readonly Dialect[]>> = {
  openai: [openaiChat, openaiResponses, openaiEmbeddings],
  anthropic: [anthropicMessages],
  gemini: [gemini],
};
