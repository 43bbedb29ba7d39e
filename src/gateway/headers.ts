/** Headers in both directions: what a provider may hear of the caller, and what the caller is told by whom. */
import type { Refused, Reserved, Standing } from "../ledger/types.ts";
import { type Limit, limitNameOf } from "../policy/limit-schema.ts";
import type { LedgerPolicy } from "../policy/resolve.ts";
import type { Dialect } from "../providers/dialect.ts";

/** Everything else stays here: credentials, cookies, addresses, which account to bill, and what the platform added. */
const FORWARDED =
  /^(accept|content-type|user-agent|idempotency-key|traceparent|tracestate|openai-beta|anthropic-(?:version|beta)|x-goog-api-client|x-stainless-[a-z-]+)$/;

/** The runtime decodes and re-frames the body; the rest is about one connection, or about another origin's cookies. */
const NOT_RETURNED =
  /^(content-encoding|content-length|transfer-encoding|connection|keep-alive|te|trailer|upgrade|proxy-.*|set-cookie|alt-svc|cf-.*|server|nel|report-to|strict-transport-security|access-control-.*|x-weir-.*)$/;

/** As OpenAI names them, and as Anthropic does. */
const PROVIDER_RATE =
  /^(?:x-ratelimit-(limit|remaining|reset)-(requests|tokens|input-tokens|output-tokens)|anthropic-ratelimit-(requests|tokens|input-tokens|output-tokens)-(limit|remaining|reset))$/;

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
    headers.append(returnedName(name), value);
  }
  return headers;
}

function returnedName(name: string): string {
  const match = PROVIDER_RATE.exec(name);
  if (match === null) return name;
  const [, figure, unit, anthropicUnit, anthropicFigure] = match;
  return `x-provider-ratelimit-${figure ?? anthropicFigure}-${unit ?? anthropicUnit}`;
}

export interface Decision {
  readonly atMs: number;
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
  const { atMs, standings, waitedMs } = event;
  const requestId = event.requestId ?? "";
  if (event.type === "refused") {
    const rung = "QUEUE_OR_REJECT";
    return { atMs, requestId, policy, policyHash: policy.hash, standings, rung, heldTokens: null, waitedMs };
  }
  const { rung, policyHash, hold } = event;
  const heldTokens = hold.inputTokens + hold.outputTokens;
  return { atMs, requestId, policy, policyHash, standings, rung, heldTokens, waitedMs };
}

export function setDecisionHeaders(
  headers: Headers,
  { atMs, requestId, policy, policyHash, rung, heldTokens, standings, waitedMs }: Decision,
  form: Dialect["rateHeaders"],
): void {
  headers.set("x-weir-request-id", requestId);
  headers.set("x-weir-policy", policyHash);
  headers.set("x-weir-rung", rung);
  headers.set("x-weir-queue-ms", String(waitedMs));
  if (heldTokens !== null) headers.set("x-weir-held-tokens", String(heldTokens));
  for (const unit of ["requests", "tokens"] as const) {
    const rate = tightestRate(unit, policy.limits, standings);
    if (rate !== null) RATE_FORMS[form](headers, unit, rate, atMs);
  }
}

type Bucket = Extract<Limit, { kind: "bucket" }>;

interface Rate {
  readonly limit: number;
  readonly remaining: number;
  /** Until the bucket is full again, in milliseconds; null for one that does not refill. */
  readonly resetMs: number | null;
}

/** Of several buckets of a unit, the one with the least left speaks. Remaining is never negative. */
function tightestRate(
  unit: "requests" | "tokens",
  limits: readonly Limit[],
  standings: readonly Standing[],
): Rate | null {
  let tightest: { bucket: Bucket; capacity: number; level: number } | null = null;
  for (const { limit: key, level } of standings) {
    const name = limitNameOf(key);
    const bucket = limits.find((limit) => limit.name === name);
    if (bucket?.kind !== "bucket" || bucket.unit !== unit || bucket.capacity === null) continue;
    if (tightest === null || level < tightest.level) tightest = { bucket, capacity: bucket.capacity, level };
  }
  if (tightest === null) return null;
  const { bucket, capacity, level } = tightest;
  const { refillPerMinute } = bucket;
  return {
    limit: capacity,
    remaining: Math.max(0, Math.floor(level)),
    resetMs: refillPerMinute > 0 ? Math.ceil(((capacity - level) / refillPerMinute) * 60_000) : null,
  };
}

type RateForm = (headers: Headers, unit: string, rate: Rate, atMs: number) => void;

const RATE_FORMS: Readonly<Record<Dialect["rateHeaders"], RateForm>> = {
  "x-ratelimit"(headers, unit, { limit, remaining, resetMs }) {
    headers.set(`x-ratelimit-limit-${unit}`, String(limit));
    headers.set(`x-ratelimit-remaining-${unit}`, String(remaining));
    if (resetMs !== null) headers.set(`x-ratelimit-reset-${unit}`, duration(resetMs));
  },
  "anthropic-ratelimit"(headers, unit, { limit, remaining, resetMs }, atMs) {
    headers.set(`anthropic-ratelimit-${unit}-limit`, String(limit));
    headers.set(`anthropic-ratelimit-${unit}-remaining`, String(remaining));
    // An instant, as RFC 3339 writes it.
    if (resetMs !== null)
      headers.set(`anthropic-ratelimit-${unit}-reset`, new Date(atMs + resetMs).toISOString());
  },
};

/** As OpenAI writes it: `120ms`, `1.5s`, `6m0s`, `1h0m0s`. */
export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.max(0, ms)}ms`;
  const hours = Math.floor(ms / 3_600_000);
  const minutes = Math.floor((ms % 3_600_000) / 60_000);
  const seconds = Number(((ms % 60_000) / 1_000).toFixed(3));
  if (hours > 0) return `${hours}h${minutes}m${seconds}s`;
  return minutes > 0 ? `${minutes}m${seconds}s` : `${seconds}s`;
}
