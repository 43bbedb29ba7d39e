/** Headers in both directions: what a provider may hear of the caller, and what the caller is told by whom. */
import type { Refused, Reserved, Standing } from "../ledger/types.ts";
import { type Limit, limitNameOf } from "../policy/limit-schema.ts";
import type { LedgerPolicy } from "../policy/resolve.ts";

/** Everything else stays here: credentials, cookies, addresses, which account to bill, and what the platform added. */
const FORWARDED =
  /^(accept|content-type|user-agent|idempotency-key|traceparent|tracestate|openai-beta|x-stainless-[a-z-]+)$/;

/** The runtime decodes and re-frames the body; the rest is about one connection, or about another origin's cookies. */
const NOT_RETURNED =
  /^(content-encoding|content-length|transfer-encoding|connection|keep-alive|te|trailer|upgrade|proxy-.*|set-cookie|alt-svc|cf-.*|server|nel|report-to|strict-transport-security|access-control-.*|x-weir-.*)$/;

const PROVIDER_RATE = /^x-ratelimit-(limit|remaining|reset)-(requests|tokens|input-tokens|output-tokens)$/;

export function upstreamHeaders(
  incoming: Headers,
  credential: readonly [string, string],
  requestId: string,
): Headers {
  const headers = new Headers();
  for (const [name, value] of incoming) if (FORWARDED.test(name)) headers.set(name, value);
  headers.set("content-type", "application/json");
  // A compressed stream arrives in lumps and cannot be metered as it goes by.
  headers.set("accept-encoding", "identity");
  headers.set("x-client-request-id", requestId);
  headers.set(...credential);
  return headers;
}

/** The provider's own answer headers, its limits under a name that says whose they are. */
export function returnedHeaders(upstream: Headers, secret: string): Headers {
  const headers = new Headers();
  for (const [name, value] of upstream) {
    if (NOT_RETURNED.test(name) || value.includes(secret)) continue;
    headers.append(PROVIDER_RATE.test(name) ? name.replace(/^x-/, "x-provider-") : name, value);
  }
  return headers;
}

export interface Decision {
  readonly requestId: string;
  readonly policy: LedgerPolicy;
  /** The policy that the ledger judged by. */
  readonly policyHash: string;
  /** The rung of the ladder that decided: what was sent, or that nothing was. */
  readonly rung: "FULL" | "QUEUE_OR_REJECT";
  /** Null when nothing was held. */
  readonly heldTokens: number | null;
  readonly standings: readonly Standing[];
  /** In the queue. */
  readonly waitedMs: number;
}

export function decisionOf(event: Reserved | Refused, policy: LedgerPolicy): Decision {
  const { standings, waitedMs } = event;
  const requestId = event.requestId ?? "";
  if (event.type === "refused") {
    const rung = "QUEUE_OR_REJECT";
    return { requestId, policy, policyHash: policy.hash, standings, rung, heldTokens: null, waitedMs };
  }
  const { rung, policyHash, hold } = event;
  const heldTokens = hold.inputTokens + hold.outputTokens;
  return { requestId, policy, policyHash, standings, rung, heldTokens, waitedMs };
}

export function setDecisionHeaders(
  headers: Headers,
  { requestId, policy, policyHash, rung, heldTokens, standings, waitedMs }: Decision,
): void {
  headers.set("x-weir-request-id", requestId);
  headers.set("x-weir-policy", policyHash);
  headers.set("x-weir-rung", rung);
  headers.set("x-weir-queue-ms", String(waitedMs));
  if (heldTokens !== null) headers.set("x-weir-held-tokens", String(heldTokens));
  setRateHeaders(headers, "requests", policy.limits, standings);
  setRateHeaders(headers, "tokens", policy.limits, standings);
}

type Bucket = Extract<Limit, { kind: "bucket" }>;

/** Of several buckets of a unit, the one with the least left speaks. Remaining is never negative. */
function setRateHeaders(
  headers: Headers,
  unit: "requests" | "tokens",
  limits: readonly Limit[],
  standings: readonly Standing[],
): void {
  let tightest: { bucket: Bucket; capacity: number; level: number } | null = null;
  for (const { limit: key, level } of standings) {
    const name = limitNameOf(key);
    const bucket = limits.find((limit) => limit.name === name);
    if (bucket?.kind !== "bucket" || bucket.unit !== unit || bucket.capacity === null) continue;
    if (tightest === null || level < tightest.level) tightest = { bucket, capacity: bucket.capacity, level };
  }
  if (tightest === null) return;
  const { bucket, capacity, level } = tightest;
  const missing = capacity - level;
  headers.set(`x-ratelimit-limit-${unit}`, String(capacity));
  headers.set(`x-ratelimit-remaining-${unit}`, String(Math.max(0, Math.floor(level))));
  if (bucket.refillPerMinute > 0)
    headers.set(
      `x-ratelimit-reset-${unit}`,
      duration(Math.ceil((missing / bucket.refillPerMinute) * 60_000)),
    );
}

/** As OpenAI writes it: `120ms`, `1.5s`, `6m0s`, `1h0m0s`. */
export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.max(0, ms)}ms`;
  const hours = Math.floor(ms / 3_600_000);
  const minutes = Math.floor((ms % 3_600_000) / 60_000);
  const seconds = Number(((ms % 60_000) / 1_000).toFixed(3));
  if (hours > 0) return `${hours}h${minutes}m${seconds}s`;
  return minutes > 0 ? `${minutes}m${seconds}s` : `${seconds}s`;
}
