/** The reservation API on the wire: plain JSON, and problem+json for every no. */
import { type Context, Hono } from "hono";
import type { Settings } from "../settings.ts";
import { readBody } from "./body.ts";
import { RESERVATION_BODY_BYTES_MAX } from "./bounds.ts";
import { authorise } from "./handle.ts";
import { type Decision, setDecisionHeaders } from "./headers.ts";
import { ledgerOf } from "./ledger-line.ts";
import { type GatewayRefusal, refuse } from "./refusal.ts";
import { newRequestId } from "./request-id.ts";
import { isVerb } from "./reservation-schema.ts";
import { type Answer, type Asker, act, decide, look, reserve } from "./reservations.ts";

interface ApiEnv {
  Bindings: Cloudflare.Env;
  Variables: { settings: Settings };
}

type Call = Context<ApiEnv>;

/** Mounted below `/t/:tenant`, where the settings have been read and the tenant's name is one. */
export const reservationRoutes = new Hono<ApiEnv>();

reservationRoutes.get("/balance", (c) =>
  answer(c, 200, async ({ ledgers, tenant, policy }) => {
    const ledger = ledgerOf(ledgers, tenant);
    await ledger.run({ type: "set_policy", policy });
    return { ok: true, value: await ledger.balance(), decision: null };
  }),
);

reservationRoutes.post("/decide", (c) =>
  answer(c, 200, async (asker) => {
    const body = await jsonOf(c.req.raw);
    return body.ok ? decide(asker, body.value) : body;
  }),
);

reservationRoutes.post("/reservations", (c) =>
  answer(c, 201, async (asker) => {
    const body = await jsonOf(c.req.raw);
    return body.ok ? reserve(asker, body.value, c.req.header("idempotency-key") ?? null) : body;
  }),
);

reservationRoutes.get("/reservations/:id", (c) => answer(c, 200, (asker) => look(asker, c.req.param("id"))));

reservationRoutes.post("/reservations/:id/:verb", (c) =>
  answer(c, 200, async (asker) => {
    const { id, verb } = c.req.param();
    if (!isVerb(verb))
      return no({ code: "unknown_path", message: `There is no verb ${JSON.stringify(verb)}.` });
    const body = await jsonOf(c.req.raw);
    return body.ok ? act(asker, verb, id, body.value) : body;
  }),
);

for (const [path, method] of [
  ["/balance", "GET"],
  ["/decide", "POST"],
  ["/reservations", "POST"],
  ["/reservations/:id", "GET"],
  ["/reservations/:id/:verb", "POST"],
] as const) {
  reservationRoutes.all(path, () => {
    const refusal = { code: "method_not_allowed", message: `Only ${method} is served here.` } as const;
    return refuse(null, newRequestId(), refusal, new Headers({ allow: method }));
  });
}

const no = (refusal: GatewayRefusal) => ({ ok: false, refusal, decision: null }) as const;

/** Who may not ask, what went wrong, and what came of it: three answers, one form. */
async function answer<T>(
  c: Call,
  status: 200 | 201,
  ask: (asker: Asker) => Promise<Answer<T>>,
): Promise<Response> {
  const requestId = newRequestId();
  const tenant = c.req.param("tenant") ?? "";
  const settings = c.get("settings");
  const allowed = await authorise(c.req.raw, tenant, settings);
  if (!allowed.ok) return refuse(null, requestId, allowed.refusal);
  const { caller, policy } = allowed;
  const asker: Asker = {
    tenant,
    caller,
    policy,
    settings,
    ledgers: c.env.TENANT_LEDGER,
    signal: c.req.raw.signal,
  };
  try {
    // What was reserved is settled or given back whether or not its caller stays.
    const asked = ask(asker);
    c.executionCtx.waitUntil(asked.catch(() => {}));
    const answered = await asked;
    const headers = headersOf(answered.decision);
    if (!answered.ok)
      return refuse(null, answered.decision?.requestId ?? requestId, answered.refusal, headers);
    headers.set("content-type", "application/json");
    return new Response(JSON.stringify(answered.value), { status, headers });
  } catch (error) {
    console.error(JSON.stringify({ weir: "ledger_unavailable", requestId, tenant, error: String(error) }));
    const message = "The ledger cannot be reached.";
    return refuse(null, requestId, { code: "ledger_unavailable", message });
  }
}

function headersOf(decision: Decision | null): Headers {
  const headers = new Headers();
  if (decision !== null) setDecisionHeaders(headers, decision, "x-ratelimit");
  return headers;
}

type Body =
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: false; readonly refusal: GatewayRefusal; readonly decision: null };

async function jsonOf(request: Request): Promise<Body> {
  const read = await readBody(request, RESERVATION_BODY_BYTES_MAX);
  if (!read.ok) {
    return read.reason === "too_large"
      ? no({
          code: "body_too_large",
          message: `The body is larger than ${RESERVATION_BODY_BYTES_MAX} bytes.`,
        })
      : no({ code: "invalid_request", message: "The body is not UTF-8." });
  }
  try {
    return { ok: true, value: JSON.parse(read.text) };
  } catch (error) {
    return no({ code: "invalid_request", message: `The body is not JSON: ${(error as Error).message}.` });
  }
}
