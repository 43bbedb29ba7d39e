/** Sends one admitted call, and says of every failure what it proves about the provider's meter. */

import type { ProviderPolicy } from "../policy/schema.ts";
import { upstreamHeaders } from "./headers.ts";
import { takesConnections } from "./reachable.ts";

export interface Upstream {
  readonly provider: ProviderPolicy;
  /** Below the provider's base URL, with its query. */
  readonly path: string;
  /** The header that carries the secret. */
  readonly credential: readonly [name: string, value: string];
  readonly secret: string;
  /** The caller's headers; only an allow-list of them goes on. */
  readonly headers: Headers;
  readonly body: string;
  readonly requestId: string;
  readonly abort: AbortController;
  /** The process runs on someone's own machine, where it may look whether the provider is there at all. */
  readonly local: boolean;
}

export type Dispatched =
  | { readonly outcome: "answered"; readonly response: Response }
  /** Nothing can have been charged. */
  | { readonly outcome: "not_sent" }
  /** The caller left, or the provider was too slow: it had the prompt. */
  | { readonly outcome: "client_gone" | "timeout" }
  /** It may or may not have been charged: a lost connection proves nothing. */
  | { readonly outcome: "unknown" };

/** How a timeout is told from a caller who left, when both abort the same call. */
export class ProviderTimeout extends Error {
  override readonly name = "ProviderTimeout";
}

export async function dispatch(upstream: Upstream): Promise<Dispatched> {
  const { provider, path, credential, headers, body, requestId, abort, local } = upstream;
  const { signal } = abort;
  if (signal.aborted) return { outcome: "not_sent" };
  const timer = setTimeout(() => abort.abort(new ProviderTimeout()), provider.headersTimeoutMs);
  try {
    const response = await fetch(`${provider.baseUrl.replace(/\/$/, "")}${path}`, {
      method: "POST",
      headers: upstreamHeaders(headers, credential, requestId),
      body,
      // A redirect would take our secret to an address that nobody configured.
      redirect: "manual",
      signal,
    });
    return { outcome: "answered", response };
  } catch {
    if (signal.aborted)
      return { outcome: signal.reason instanceof ProviderTimeout ? "timeout" : "client_gone" };
    const neverSent = local && !(await takesConnections(provider.baseUrl));
    return { outcome: neverSent ? "not_sent" : "unknown" };
  } finally {
    clearTimeout(timer);
  }
}
