/** Answers that are no completion at all: what a provider, or a box in front of it, sends on a bad day. */

import type { Directives } from "./directives.ts";
import { errorBody, orderedError, type Refusal } from "./errors.ts";
import type { Outcome } from "./journal.ts";
import { STALL_MS, sleep } from "./time.ts";

export type AnswerHeaders = Readonly<Record<string, string>>;

export interface Fault {
  readonly outcome: Extract<Outcome, "refused" | "error">;
  readonly response: Response;
}

const LOGIN_PAGE = "<!doctype html><title>Sign in</title><h1>Sign in to continue</h1>\n";
const BAD_GATEWAY_PAGE =
  "<html><head><title>502 Bad Gateway</title></head><body>502 Bad Gateway</body></html>\n";

export async function faultBeforeOutput(
  { counts, flags, texts }: Directives,
  headers: AnswerHeaders,
  client: AbortSignal,
): Promise<Fault | undefined> {
  if (flags.has("stallHeaders")) {
    await sleep(STALL_MS, client);
    return { outcome: "error", response: page(504, "", headers) };
  }
  if (texts.redirect !== undefined) {
    const response = new Response(null, { status: 307, headers: { ...headers, location: texts.redirect } });
    return { outcome: "error", response };
  }
  if (flags.has("html")) return { outcome: "error", response: page(200, LOGIN_PAGE, headers) };
  if (flags.has("fail500text")) return { outcome: "error", response: page(502, BAD_GATEWAY_PAGE, headers) };
  if (counts.status !== undefined) {
    return { outcome: "refused", response: refuse(orderedError(counts.status, texts.retryAfter), headers) };
  }
  return undefined;
}

export function refuse(refusal: Refusal, headers: AnswerHeaders): Response {
  const retry: AnswerHeaders = refusal.retryAfter === undefined ? {} : { "retry-after": refusal.retryAfter };
  return new Response(errorBody(refusal), {
    status: refusal.status,
    headers: { ...headers, ...retry, "content-type": "application/json" },
  });
}

function page(status: number, html: string, headers: AnswerHeaders): Response {
  return new Response(html, { status, headers: { ...headers, "content-type": "text/html; charset=utf-8" } });
}
