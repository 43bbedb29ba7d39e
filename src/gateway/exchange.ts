/**
 * An admitted call, from dispatch to settlement. The promise it returns for the answer resolves at the
 * provider's headers; the work goes on under `waitUntil` until the lease is settled, whoever leaves.
 */
import type { Reserved } from "../ledger/types.ts";
import type { Keeping, Usage } from "../providers/dialect.ts";
import { DRAIN_MAX_MS, PROVIDER_REQUEST_ID_LENGTH_MAX } from "./bounds.ts";
import { dispatch, type Upstream } from "./dispatch.ts";
import { returnedHeaders } from "./headers.ts";
import { Heartbeat } from "./heartbeat.ts";
import type { LedgerLine } from "./ledger-line.ts";
import { masking, SecretMask } from "./mask.ts";
import type { Meter } from "./meter.ts";
import { pump } from "./pump.ts";
import type { GatewayRefusal } from "./refusal.ts";
import { tapFor } from "./tap.ts";

export interface Exchange {
  readonly lease: Reserved;
  readonly line: LedgerLine;
  readonly meter: Meter;
  readonly upstream: Upstream;
  /** What the request, as sent, asked for. */
  readonly asked: Keeping & {
    readonly stream: boolean;
    readonly stripUsage: boolean;
    /** Spends no tokens, whatever the answer says. */
    readonly free: boolean;
  };
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
  const departure = new Departure(upstream.abort, exchange.meter);
  signal.addEventListener("abort", departure.happened);
  if (signal.aborted) departure.happened();
  const heartbeat = new Heartbeat(exchange.lease, line, exchange.meter);
  try {
    const dispatched = await dispatch(upstream);
    if (dispatched.outcome === "answered")
      await relay(exchange, dispatched.response, { heartbeat, give, departure });
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
    signal.removeEventListener("abort", departure.happened);
    departure.stop();
    line.close();
  }
}

async function settleUnanswered(
  exchange: Exchange,
  outcome: "not_sent" | "client_gone" | "timeout" | "unknown",
  give: (answer: Answer) => void,
): Promise<void> {
  const { lease, line, meter, asked } = exchange;
  const { requestId, fence } = lease;
  const refusal: GatewayRefusal =
    outcome === "timeout"
      ? { code: "provider_timeout", message: "The provider did not answer in time." }
      : { code: "provider_unreachable", message: "The provider could not be reached." };
  // Nobody's leaving ends what runs in the background.
  switch (outcome !== "not_sent" && asked.background ? "unknown" : outcome) {
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

/** What the caller's leaving does to the provider's call: ends it, or what remains of it within a bound. */
class Departure {
  readonly #abort: AbortController;
  readonly #meter: Meter;
  #timer: ReturnType<typeof setTimeout> | null = null;

  constructor(abort: AbortController, meter: Meter) {
    this.#abort = abort;
    this.#meter = meter;
  }

  readonly happened = (): void => {
    const end = () => this.#abort.abort(new Error("the caller left"));
    if (!this.#meter.finished) end();
    else this.#timer ??= setTimeout(end, DRAIN_MAX_MS);
  };

  stop(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
  }
}

interface Attended {
  readonly heartbeat: Heartbeat;
  readonly give: (answer: Answer) => void;
  readonly departure: Departure;
}

async function relay(
  exchange: Exchange,
  response: Response,
  { heartbeat, give, departure }: Attended,
): Promise<void> {
  const { lease, line, meter, upstream, asked } = exchange;
  const { requestId, fence } = lease;
  const headers = returnedHeaders(response.headers, upstream.secret);
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
      const body = response.body?.pipeThrough(masking(upstream.secret)) ?? null;
      give({ ok: true, response: new Response(body, { status: response.status, headers }) });
    }
    await released;
    return;
  }
  const named = response.headers.get("x-request-id") ?? response.headers.get("request-id");
  const runs = (id: string | null) =>
    line.send({
      type: "running",
      requestId,
      fence,
      providerRequestId: id?.slice(0, PROVIDER_REQUEST_ID_LENGTH_MAX) ?? null,
    });
  // An answer that the provider keeps goes by its own name, which comes with its first event, or with the word that it
  // has been begun. Of any other unary answer the name comes when all is known.
  let unnamed = asked.stored && (asked.stream || asked.background);
  const running = [runs(unnamed ? null : named)];
  const learnName = () => {
    if (!unnamed || meter.answerId === null) return;
    unnamed = false;
    running.push(runs(meter.answerId));
  };
  // Some statuses may not carry a body; whatever the provider sends then is read, and goes nowhere.
  const bodiless = response.status === 204 || response.status === 205;
  const { readable, writable } = bodiless
    ? { readable: null, writable: new WritableStream<Uint8Array>() }
    : new IdentityTransformStream();
  give({ ok: true, response: new Response(readable, { status: response.status, headers }) });
  const tap = tapFor(response.headers.get("content-type"), meter, asked);
  const ended = await pump({
    body: response.body as ReadableStream<Uint8Array> | null,
    writable,
    tap,
    mask: new SecretMask(upstream.secret),
    finished: () => meter.finished,
    abort: upstream.abort,
    idleTimeoutMs: upstream.provider.idleTimeoutMs,
    onProgress: () => {
      heartbeat.progressed();
      learnName();
    },
    onCallerGone: departure.happened,
  });
  heartbeat.stop();
  learnName();
  await Promise.all(running);
  await settle(exchange, ended);
}

const NO_USAGE = {
  inputTokens: 0,
  outputTokens: 0,
  cachedInputTokens: 0,
  cacheWriteTokens: 0,
  reasoningTokens: 0,
} as const satisfies Usage;

async function settle({ lease, line, meter, asked }: Exchange, ended: "complete" | "cut"): Promise<void> {
  const { requestId, fence } = lease;
  if (asked.free) {
    await line.send({ type: "settle", requestId, fence, usage: NO_USAGE, basis: "exact" });
    return;
  }
  if (meter.failed && !meter.anyOutput && meter.reported === null) {
    // A 200 that turned into a failure before a word was said: the provider refused, late.
    await line.send({ type: "release", requestId, fence, evidence: "provider_refused" });
    return;
  }
  const exact = ended === "complete" || meter.final ? meter.exact : null;
  if (exact === null && asked.background && !meter.failed) {
    // It goes on without us. What it held stays held until the provider says what it came to, or the policy does.
    await line.send({ type: "expire", requestId, cause: "outcome_unknown" });
    return;
  }
  const usage = exact ?? meter.soFar;
  if (exact === null && meter.malformed > 0) {
    console.warn(JSON.stringify({ weir: "usage_unread", requestId, malformedPayloads: meter.malformed }));
  }
  await line.send({
    type: "settle",
    requestId,
    fence,
    usage,
    basis: exact === null ? "under_estimate" : "exact",
  });
}
