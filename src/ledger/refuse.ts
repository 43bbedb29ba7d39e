/** How a refusal is made: all its evidence, and nothing guessed. */
import type { RefusalCode, Refused } from "./types.ts";

type Evidence = Partial<Omit<Refused, "type" | "code" | "requestId" | "atMs">>;

export function refusal(
  code: RefusalCode,
  requestId: string | null,
  atMs: number,
  evidence: Evidence = {},
): Refused {
  return {
    type: "refused",
    atMs,
    code,
    requestId,
    limit: null,
    requested: null,
    available: null,
    retryAfterMs: null,
    state: null,
    hold: null,
    standings: [],
    ...evidence,
  };
}
