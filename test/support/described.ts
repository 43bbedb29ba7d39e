/** Requests as a dialect describes them, for tests of what comes after. */
import type { ChatRequest, CountTerms, Dialect, Malformed } from "../../src/providers/dialect.ts";
import { loadCounter } from "../../src/tokens/encodings.ts";
import { imagePricingOf } from "../../src/tokens/media/image-price.ts";
import type { InputCount } from "../../src/tokens/tally.ts";
import { endpointOf } from "./endpoints.ts";

export interface DescribedAt {
  readonly dialect: Dialect;
  readonly request: ChatRequest;
}

export function describedAt(path: string, body: object): DescribedAt {
  const { dialect, target } = endpointOf(path);
  const described = dialect.describe(JSON.stringify(body), target);
  if (!described.ok) throw new Error(described.malformed.message);
  return { dialect, request: described.request };
}

/** Null when nothing is wrong. */
export function problemAt(path: string, body: object | string): Malformed | null {
  const { dialect, target } = endpointOf(path);
  const described = dialect.describe(typeof body === "string" ? body : JSON.stringify(body), target);
  return described.ok ? null : described.malformed;
}

export const COUNTER = await loadCounter("o200k_base", "policy");

export const tokensOf = (text: string): number => COUNTER.count(text).tokens;

export function countedAt(path: string, body: object, unseenInputTokens = 4096): InputCount {
  const { dialect, request } = describedAt(path, body);
  const terms: CountTerms = { images: imagePricingOf(request.model), unseenInputTokens };
  return dialect.countInput(request, COUNTER, terms);
}
