/** Every no that the gateway can say, on the wire: status, retry, and the caller's own dialect. */
import type { RefusalCode, Refused } from "../ledger/types.ts";
import { limitNameOf, scopeOf } from "../policy/limit-schema.ts";
import type { Dialect } from "../providers/dialect.ts";
import { RETRY_AFTER_HONOURED_MS } from "./bounds.ts";

export type GatewayCode =
  | Exclude<RefusalCode, "need_policy">
  | "unauthenticated"
  | "forbidden"
  | "unknown_route"
  | "unknown_model"
  | "unknown_path"
  | "method_not_allowed"
  | "body_too_large"
  | "invalid_request"
  | "ledger_unavailable"
  | "misconfigured"
  | "internal_error"
  | "provider_unreachable"
  | "provider_timeout"
  | "provider_redirect";

interface Wire {
  readonly status: number;
  readonly retry: "when_it_fits" | "short" | "never";
  readonly rate: "tokens" | "requests" | null;
  readonly limitedBy: "gateway" | "provider";
}

const gateway = (status: number, retry: Wire["retry"], rate: Wire["rate"] = null): Wire => ({
  status,
  retry,
  rate,
  limitedBy: "gateway",
});
const provider = (status: number): Wire => ({ status, retry: "short", rate: null, limitedBy: "provider" });

const WIRE: Readonly<Record<GatewayCode, Wire>> = {
  tokens_exhausted: gateway(429, "when_it_fits", "tokens"),
  in_flight_exhausted: gateway(429, "when_it_fits", "tokens"),
  below_batch_floor: gateway(429, "when_it_fits", "tokens"),
  spend_exhausted: gateway(429, "when_it_fits", "tokens"),
  requests_exhausted: gateway(429, "when_it_fits", "requests"),
  concurrency_exhausted: gateway(429, "when_it_fits", "requests"),
  request_too_large: gateway(400, "never"),
  queue_full: gateway(503, "short"),
  slo_infeasible: gateway(503, "short"),
  deadline_exceeded: gateway(503, "short"),
  idempotency_conflict: gateway(409, "never"),
  request_in_progress: gateway(409, "short"),
  unknown_reservation: gateway(404, "never"),
  invalid_state: gateway(409, "never"),
  stale_fence: gateway(409, "never"),
  already_settled: gateway(409, "never"),
  unauthenticated: gateway(401, "never"),
  forbidden: gateway(403, "never"),
  unknown_route: gateway(404, "never"),
  unknown_model: gateway(404, "never"),
  unknown_path: gateway(404, "never"),
  method_not_allowed: gateway(405, "never"),
  body_too_large: gateway(413, "never"),
  invalid_request: gateway(400, "never"),
  ledger_unavailable: gateway(503, "short"),
  misconfigured: gateway(503, "short"),
  internal_error: gateway(500, "short"),
  provider_unreachable: provider(502),
  provider_timeout: provider(504),
  provider_redirect: provider(502),
};

const SHORT_RETRY_MS = 1_000;

export interface GatewayRefusal {
  readonly code: GatewayCode;
  readonly message: string;
  readonly param?: string | null;
  readonly advice?: string;
  /** The ledger's evidence, when the ledger said no. */
  readonly evidence?: Refused;
  readonly scope?: Readonly<Record<string, string>>;
  /** What was asked and what there is, where no ledger was. */
  readonly amounts?: { readonly requested: number; readonly available: number };
}

/** Without a dialect the answer is problem+json, its members at the top. */
export function refuse(
  dialect: Dialect | null,
  requestId: string,
  refusal: GatewayRefusal,
  headers = new Headers(),
): Response {
  const wire = WIRE[refusal.code];
  const retryAfterMs = retryAfterOf(wire, refusal);
  const { requested = null, available = null } = refusal.evidence ?? refusal.amounts ?? {};
  const weir = {
    code: refusal.code,
    limitedBy: wire.limitedBy,
    limit: limitOf(refusal.evidence),
    scope: refusal.scope ?? null,
    requested,
    available,
    retryAfterMs,
    /** Of the lease, where that is what stands in the way. */
    ...(refusal.evidence?.state == null ? {} : { state: refusal.evidence.state }),
    requestId,
    advice: refusal.advice ?? null,
  };
  headers.set("x-weir-request-id", requestId);
  headers.set("x-weir-limited-by", wire.limitedBy);
  // The SDKs' exceptions show the dialect's own error and the headers, not what stands beside the error.
  headers.set("x-weir-code", refusal.code);
  if (retryAfterMs !== null) {
    headers.set("retry-after", String(Math.max(1, Math.ceil(retryAfterMs / 1_000))));
    headers.set("retry-after-ms", String(retryAfterMs));
  }
  if (retryAfterMs === null || retryAfterMs > RETRY_AFTER_HONOURED_MS) headers.set("x-should-retry", "false");
  if (refusal.code === "ledger_unavailable") headers.set("x-weir-degraded", "fail_closed");
  const { message } = refusal;
  const param = refusal.param ?? null;
  const { status, rate } = wire;
  if (dialect !== null) {
    headers.set("content-type", "application/json");
    return new Response(JSON.stringify(dialect.errorBody({ status, message, param, rate, weir })), {
      status,
      headers,
    });
  }
  headers.set("content-type", "application/problem+json");
  return new Response(JSON.stringify({ type: "about:blank", title: message, status, ...weir }), {
    status,
    headers,
  });
}

function limitOf(evidence: Refused | undefined): string | null {
  return evidence?.limit == null ? null : limitNameOf(evidence.limit);
}

function retryAfterOf(wire: Wire, refusal: GatewayRefusal): number | null {
  if (wire.retry === "never") return null;
  // A forecast is better than a guess; without one it is short.
  if (wire.retry === "short") return Math.max(SHORT_RETRY_MS, refusal.evidence?.retryAfterMs ?? 0);
  return refusal.evidence?.retryAfterMs ?? null;
}

/** Refusals that are not about an amount. */
const PLAIN: Partial<Record<GatewayCode, (evidence: Refused) => string>> = {
  queue_full: () => "The queue is full; whoever comes now is sent away at once.",
  slo_infeasible: ({ retryAfterMs }) =>
    `It would wait for about ${retryAfterMs} ms, which is past its deadline.`,
  deadline_exceeded: ({ waitedMs }) => `It waited for ${waitedMs} ms, and its deadline has passed.`,
  idempotency_conflict: () => "The idempotency key was used with another body.",
  request_in_progress: () => "A request with this idempotency key is still running.",
  unknown_reservation: () => "The ledger does not know this reservation, or no longer does.",
  invalid_state: ({ state }) => `The reservation is ${state}, which does not allow this.`,
  stale_fence: () => "The reservation has another owner: this fence counts no more.",
  already_settled: () => "It was settled with another amount before.",
};

/** What a ledger's refusal means to the person who reads it. */
export function explain(evidence: Refused, tenant: string): GatewayRefusal {
  const code = evidence.code === "need_policy" ? "internal_error" : evidence.code;
  const { requested, available, retryAfterMs } = evidence;
  const limit = limitNameOf(evidence.limit ?? "");
  const scope = { tenant, ...scopeOf(evidence.limit ?? "") };
  const plain = PLAIN[code];
  if (plain !== undefined) return { code, message: plain(evidence), evidence, scope };
  if (code === "request_too_large") {
    const message = `This request needs ${requested}, and ${limit} never affords more than ${available}.`;
    return {
      code,
      message,
      evidence,
      scope,
      advice: "Shorten the prompt, or ask for a smaller max_completion_tokens.",
    };
  }
  const when = retryAfterMs === null ? "It will not fit by waiting alone." : `It fits in ${retryAfterMs} ms.`;
  return {
    code,
    message: `The limit ${limit} has ${available} left and this request needs ${requested}. ${when}`,
    evidence,
    scope,
  };
}
