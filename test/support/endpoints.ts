/** Where requests come in, for tests that do not come by the route. */
import type { RequestTarget } from "../../src/providers/dialect.ts";
import { type Endpoint, endpointAt } from "../../src/providers/registry.ts";

/** By the path below the tenant, with its query. */
export function endpointOf(pathAndQuery: string): Endpoint {
  const { pathname, searchParams } = new URL(pathAndQuery, "https://weir.test");
  const endpoint = endpointAt(pathname, searchParams);
  if (endpoint === null) throw new Error(`nothing is served at ${pathAndQuery}`);
  return endpoint;
}

export function targetOf(pathAndQuery: string): RequestTarget {
  return endpointOf(pathAndQuery).target;
}

export const CHAT_PATH = "/v1/chat/completions";
