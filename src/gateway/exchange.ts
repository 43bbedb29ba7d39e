/**
 * An admitted call, from dispatch to settlement. The promise it returns for the answer resolves at the
 * provider's headers; the work goes on under `waitUntil` until the lease is settled, whoever leaves.
 */
import type { Reserved } from "../ledger/types.ts";
import {
  CAPTURE_EVERY_TOKENS,
  CAPTURE_INTERVAL_MS,
  ERROR_BODY_BYTES_MAX,
  RENEWALS_PER_TTL,
} from "./bounds.ts";
import { dispatch, ProviderTimeout, type Upstream } from "./dispatch.ts";
import { returnedHeaders } from "./headers.ts";
import type { LedgerLine } from "./ledger-line.ts";
import { maskSecret } from "./mask.ts";
import { type Meter, tapFor } from "./meter.ts";
import { type GatewayRefusal } from "./refusal.ts";

export interface Exchange {
  readonly lease: Reserved;
  readonly line: LedgerLine;
  readonly meter: Meter;
  readonly upstream: Upstream;
  readonly stripUsage: boolean;
  /** The caller's own end: fires when they leave, where the runtime notices. */
  readonly signal: AbortSignal;
}

/** The provider's answer, or why there is none. */
export type Answer =
  | { readonly ok: true; readonly response: Response }
  | { readonly ok: false; readonly refusal: GatewayRefusal };

export function startExchange(exchange: Exchange): {
  readonly answer: Promise<Answer>;
  readonly done: Promise<void>;
} {
  let give: (answer: Answer) => void = () => {};
  const answer = new Promise<Answer>((resolve) => {
    give = resolve;
  });
  return { answer, done: carryOut(exchange, give) };
}

async function carryOut(exchange: Exchange, give: (answer: Answer) => void): Promise<void> {
  const { upstream, signal, line } = exchange;
  const leave = () => upstream.abort.abort(new Error("the caller left"));
  signal.addEventListener("abort", leave);
  if (signal.aborted) leave();
  const heartbeat = new Heartbeat(exchange);
  try {
    const dispatched = await dispatch(upstream);
    if (dispatched.outcome === "answered") await relay(exchange, dispatched.response, heartbeat, give);
    else await settleUnanswered(exchange, dispatched.outcome, give);
  } catch (error) {
    // A bug of ours. The caller is told; the lease is frozen by the end of its session, never guessed at.
    const { requestId } = exchange.lease;
    console.error(JSON.stringify({ weir: "internal_error", requestId, error: String(error) }));
    give({
      ok: false,
      refusal: { code: "internal_error", message: "The gateway failed while the provider answered." },
    });
  } finally {
    heartbeat.stop();
    signal.removeEventListener("abort", leave);
    line.close();
  }
}

/** Keeps the lease alive while its worker lives, and tells the ledger what has been produced. */
class Heartbeat {
  readonly #exchange: Exchange;
  readonly #timer: ReturnType<typeof setInterval>;
  #captures = 0;
  #capturedTokens = 0;
  /** Set while a body is being read: how long the provider may be silent. */
  idle: { readonly timeoutMs: number; lastReadAtMs: number } | null = null;

  constructor(exchange: Exchange) {
    this.#exchange = exchange;
    const everyMs = Math.min(CAPTURE_INTERVAL_MS, exchange.lease.ttlMs / RENEWALS_PER_TTL);
    this.#timer = setInterval(() => {
      const { idle } = this;
      if (idle !== null && Date.now() - idle.lastReadAtMs > idle.timeoutMs)
        exchange.upstream.abort.abort(new ProviderTimeout());
      this.#capture();
    }, everyMs);
  }

  /** Between two beats, when much has been produced. */
  progressed(): void {
    if (this.#exchange.meter.soFar.outputTokens - this.#capturedTokens >= CAPTURE_EVERY_TOKENS)
      this.#capture();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  #capture(): void {
    const { meter, lease, line } = this.#exchange;
    const { outputTokens, inputTokens } = meter.soFar;
    this.#captures += 1;
    this.#capturedTokens = outputTokens;
    const { requestId, fence } = lease;
    // Before any output nothing is known to be used; the beat then only renews.
    const size =
      meter.anyOutput || meter.reported !== null
        ? { inputTokens, outputTokens }
        : { inputTokens: 0, outputTokens: 0 };
    void line.send({ type: "capture", requestId, fence, usageEventId: `c${this.#captures}`, size });
  }
}

async function settleUnanswered(
  exchange: Exchange,
  outcome: "not_sent" | "client_gone" | "timeout" | "unknown",
  give: (answer: Answer) => void,
): Promise<void> {
  const { lease, line, meter } = exchange;
  const { requestId, fence } = lease;
  const refusal: GatewayRefusal =
    outcome === "timeout"
      ? { code: "provider_timeout", message: "The provider did not answer in time." }
      : { code: "provider_unreachable", message: "The provider could not be reached." };
  switch (outcome) {
    case "not_sent":
      await line.send({ type: "release", requestId, fence, evidence: "not_sent" });
      break;
    case "client_gone":
    case "timeout":
      // The provider had the prompt, and nobody will hear what it made of it.
      await line.send({ type: "settle", requestId, fence, usage: meter.soFar, basis: "under_estimate" });
      break;
    case "unknown":
      await line.send({ type: "expire", requestId, cause: "outcome_unknown" });
      break;
  }
  give({ ok: false, refusal });
}

async function relay(
  exchange: Exchange,
  response: Response,
  heartbeat: Heartbeat,
  give: (answer: Answer) => void,
): Promise<void> {
  const { lease, line, upstream } = exchange;
  const { requestId, fence } = lease;
  const headers = returnedHeaders(response.headers);
  if (response.status >= 300) {
    // Refused before any output: tokens go back whole, and the request unit the provider counted stays spent.
    const released = line.send({ type: "release", requestId, fence, evidence: "provider_refused" });
    if (response.status < 400) {
      await response.body?.cancel();
      give({
        ok: false,
        refusal: {
          code: "provider_redirect",
          message: "The provider redirected the call, which is not followed.",
        },
      });
    } else {
      headers.set("x-weir-limited-by", "provider");
      const body =
        response.body === null
          ? null
          : await maskSecret(response.body, upstream.secret, ERROR_BODY_BYTES_MAX);
      give({ ok: true, response: new Response(body, { status: response.status, headers }) });
    }
    await released;
    return;
  }
  const providerRequestId = response.headers.get("x-request-id") ?? response.headers.get("request-id");
  const running = line.send({ type: "running", requestId, fence, providerRequestId });
  // Some statuses may not carry a body; whatever the provider sends then is read, and goes nowhere.
  const bodiless = response.status === 204 || response.status === 205;
  const { readable, writable } = bodiless
    ? { readable: null, writable: new WritableStream<Uint8Array>() }
    : new IdentityTransformStream();
  give({ ok: true, response: new Response(readable, { status: response.status, headers }) });
  const ended = await pump(exchange, response, writable, heartbeat);
  heartbeat.stop();
  await running;
  await settle(exchange, ended);
}

/** "complete" only if the provider's body came to its own end. */
async function pump(
  exchange: Exchange,
  response: Response,
  writable: WritableStream<Uint8Array>,
  heartbeat: Heartbeat,
): Promise<"complete" | "cut"> {
  const { meter, upstream, stripUsage } = exchange;
  const tap = tapFor(response.headers.get("content-type"), meter, stripUsage);
  const writer = writable.getWriter();
  const reader = (
    response.body ?? new Blob([]).stream()
  ).getReader() as ReadableStreamDefaultReader<Uint8Array>;
  const idle = { timeoutMs: upstream.provider.idleTimeoutMs, lastReadAtMs: Date.now() };
  heartbeat.idle = idle;
  const forward = async (pieces: readonly Uint8Array[], read: () => void) => {
    const writes = pieces.map((piece) => writer.write(piece));
    read();
    await Promise.all(writes);
  };
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      idle.lastReadAtMs = Date.now();
      const { forward: pieces, read } = tap.push(value);
      await forward(pieces, read);
      heartbeat.progressed();
    }
    const rest = tap.end();
    await forward(rest, () => {});
    await writer.close();
    return "complete";
  } catch (error) {
    // Either side may have broken off. Both are told, so that neither keeps working for the other.
    upstream.abort.abort(error);
    await Promise.allSettled([reader.cancel(error), writer.abort(error)]);
    return "cut";
  }
}

async function settle({ lease, line, meter }: Exchange, ended: "complete" | "cut"): Promise<void> {
  const { requestId, fence } = lease;
  if (meter.failed && !meter.anyOutput && meter.reported === null) {
    // A 200 that turned into a failure before a word was said: the provider refused, late.
    await line.send({ type: "release", requestId, fence, evidence: "provider_refused" });
    return;
  }
  const exact = meter.reported !== null && !meter.failed && (ended === "complete" || meter.final);
  const usage = exact && meter.reported !== null ? meter.reported : meter.soFar;
  await line.send({ type: "settle", requestId, fence, usage, basis: exact ? "exact" : "under_estimate" });
}
