/**
 * The verdict and what follows from it. Once `reserve` is on its way the ledger may hold something, so all
 * of this runs under `waitUntil`: a caller who leaves changes what is settled, never whether.
 */
import type { LedgerEvent, Reserved } from "../ledger/types.ts";
import type { Dialect } from "../providers/dialect.ts";
import type { Admission, Context } from "./call.ts";
import { type Exchange, startExchange } from "./exchange.ts";
import { decisionOf, setDecisionHeaders } from "./headers.ts";
import { LedgerLine } from "./ledger-line.ts";
import { Meter } from "./meter.ts";
import { explain, refuse } from "./refusal.ts";

export async function admit(
  request: Request,
  dialect: Dialect,
  context: Context,
  admission: Admission,
): Promise<Response> {
  const { policy, reserve, tenant } = admission;
  const { requestId } = reserve;
  const line = new LedgerLine(context.env.TENANT_LEDGER, tenant);
  const verdict = line.reserve(reserve, policy, request.signal).catch((error: unknown) => {
    console.error(JSON.stringify({ weir: "ledger_unavailable", requestId, tenant, error: String(error) }));
    return null;
  });
  // From here on the ledger may hold something: what follows happens whether or not the caller stays.
  const answered = verdict.then((reply) => conclude(request, dialect, context, admission, line, reply));
  context.waitUntil(answered);
  return answered;
}

async function conclude(
  request: Request,
  dialect: Dialect,
  context: Context,
  admission: Admission,
  line: LedgerLine,
  reply: LedgerEvent | null,
): Promise<Response> {
  const { policy, reserve, tenant } = admission;
  const { requestId } = reserve;
  if (reply?.type === "refused") {
    line.close();
    const headers = new Headers();
    setDecisionHeaders(headers, decisionOf(reply, policy), dialect.rateHeaders);
    return refuse(dialect, requestId, explain(reply, tenant), headers);
  }
  if (reply?.type === "left") {
    line.close();
    return refuse(dialect, requestId, { code: "deadline_exceeded", message: "The caller left the queue." });
  }
  // Whoever waited may have been given up meanwhile: only what the ledger confirms is sent.
  const granted = reply?.type === "reserved" && (await confirmed(line, reply));
  if (reply?.type !== "reserved" || !granted) {
    // Fail closed. The reserve may still have been booked: its id is closed, so that it cannot leak.
    context.waitUntil(
      line
        .send({ type: "release", requestId, fence: null, evidence: "not_sent" })
        .finally(() => line.close()),
    );
    return refuse(dialect, requestId, {
      code: "ledger_unavailable",
      message: "The ledger cannot be reached; nothing was sent.",
    });
  }
  const { answer, done } = startExchange(
    exchangeOf(request, dialect, context.settings.local, admission, line, reply),
  );
  context.waitUntil(done);
  const answered = await answer;
  const headers = answered.ok ? answered.response.headers : new Headers();
  setDecisionHeaders(headers, decisionOf(reply, policy), dialect.rateHeaders);
  return answered.ok ? answered.response : refuse(dialect, requestId, answered.refusal, headers);
}

/** An immediate grant is dispatched already; one out of the queue must be taken up. */
async function confirmed(line: LedgerLine, { state, requestId, fence }: Reserved): Promise<boolean> {
  if (state === "DISPATCHED") return true;
  const reply = await line.send({ type: "dispatch", requestId, fence });
  return reply?.type === "dispatched";
}

function exchangeOf(
  request: Request,
  dialect: Dialect,
  local: boolean,
  { call, counter, edited }: Admission,
  line: LedgerLine,
  lease: Reserved,
): Exchange {
  const { requestId } = lease;
  const { provider } = call.target;
  const { headers, signal } = request;
  const upstream = {
    provider,
    path: dialect.upstreamPath(call.chat),
    credential: dialect.credential(call.secret),
    secret: call.secret,
    headers,
    body: edited.text,
    requestId,
    abort: new AbortController(),
    local,
  };
  const meter = new Meter(dialect, counter, lease.hold.inputTokens, call.chat.completions);
  return {
    lease,
    line,
    meter,
    upstream,
    asked: {
      stream: call.chat.stream,
      free: call.chat.target.operation === "count",
      stripUsage: edited.stripUsage,
      ...(dialect.keeping?.(call.chat) ?? { stored: false, background: false }),
    },
    signal,
  };
}
