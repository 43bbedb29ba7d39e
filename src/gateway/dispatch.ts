/** Sends one admitted call, and says of every failure what it proves about the provider's meter. */

import type { ProviderPolicy } from "../policy/schema.ts";
import type { Dialect } from "../providers/dialect.ts";
import { upstreamHeaders } from "./headers.ts";

export interface Upstream {
  readonly provider: ProviderPolicy;
  readonly dialect: Dialect;
  readonly secret: string;
  /** The caller's headers; only an allow-list of them goes on. */
  readonly headers: Headers;
  readonly body: string;
  readonly requestId: string;
  readonly abort: AbortController;
}

export type Dispatched =
  | { readonly outcome: "answered"; readonly response: Response }
  /** Nothing can have been charged. */
  | { readonly outcome: "not_sent" }
  /** The caller left, or the provider was too slow: it had the prompt. */
  | { readonly outcome: "client_gone" | "timeout" }
  /** It may or may not have been charged. */
  | { readonly outcome: "unknown" };

/** How a timeout is told from a caller who left, when both abort the same call. */
export class ProviderTimeout extends Error {
  override readonly name = "ProviderTimeout";
}

export async function dispatch({
  provider,
  dialect,
  secret,
  headers,
  body,
  requestId,
  abort,
}: Upstream): Promise<Dispatched> {
  const { signal } = abort;
  if (signal.aborted) return { outcome: "not_sent" };
  const timer = setTimeout(() => abort.abort(new ProviderTimeout()), provider.headersTimeoutMs);
  try {
    const response = await fetch(`${provider.baseUrl.replace(/\/$/, "")}${dialect.upstreamPath}`, {
      method: "POST",
      headers: upstreamHeaders(headers, dialect.credential(secret), requestId),
      body,
      // A redirect would take our secret to an address that nobody configured.
      redirect: "manual",
      signal,
    });
    return { outcome: "answered", response };
  } catch (error) {
    if (signal.aborted)
      return { outcome: signal.reason instanceof ProviderTimeout ? "timeout" : "client_gone" };
    return { outcome: neverConnected(error) ? "not_sent" : "unknown" };
  } finally {
    clearTimeout(timer);
  }
}

/** Only what proves that no connection came about; a connection that was lost proves nothing. */
function neverConnected(error: unknown): boolean {
  const message = error instanceof Error ? error.message : String(error);
  return /connection refused|dns lookup failed|dns error|getaddrinfo|no route to host|network is unreachable/i.test(
    message,
  );
}
