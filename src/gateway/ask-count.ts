/** Asks the provider how large a prompt is, where its own count is wanted before anything is held. */

import type { Dialect } from "../providers/dialect.ts";
import { readBody } from "./body.ts";
import { COUNT_ANSWER_BYTES_MAX } from "./bounds.ts";
import type { Call } from "./call.ts";
import { upstreamHeaders } from "./headers.ts";

/** Null where it cannot be asked, or gave no count in time; the caller's leaving ends the wait. */
export async function askCount(
  dialect: Dialect,
  { chat, target: { provider }, secret, route }: Call,
  { headers, signal }: Request,
  requestId: string,
): Promise<number | null> {
  if (dialect.countEndpoint === null) return null;
  const { path, body } = dialect.countEndpoint.request(chat);
  const inTime = AbortSignal.any([signal, AbortSignal.timeout(route.inputCount.timeoutMs)]);
  try {
    const response = await fetch(`${provider.baseUrl.replace(/\/$/, "")}${path}`, {
      method: "POST",
      headers: upstreamHeaders(headers, dialect.credential(secret), requestId),
      body,
      redirect: "manual",
      signal: inTime,
    });
    const answer = await readBody(response, COUNT_ANSWER_BYTES_MAX);
    return response.ok && answer.ok ? dialect.countEndpoint.read(answer.text) : null;
  } catch {
    return null;
  }
}
