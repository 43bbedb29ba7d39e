/**
 * One request, from the edge to settlement. Read this first.
 *
 *   authenticate → read → describe → resolve → count → reserve → exchange (dispatch, meter, settle)
 *
 * Until `reserve` answers nothing is held and every refusal is free. From then on the lease is the
 * exchange's, which settles it whatever happens; it is registered with `waitUntil` before we answer.
 */
import type { Refused, Reserve, Reserved } from "../ledger/types.ts";
import {
  type LedgerPolicy,
  lowestClass,
  perRequestMaxTokens,
  type ResolvedModel,
  resolveModel,
  resolveRoute,
  resolveTenant,
} from "../policy/resolve.ts";
import type { RoutePolicy } from "../policy/schema.ts";
import type { ChatRequest, Dialect } from "../providers/dialect.ts";
import type { Settings } from "../settings.ts";
import type { Counter } from "../tokens/counter.ts";
import { loadCounter } from "../tokens/encodings.ts";
import { authenticate, type Caller } from "./auth.ts";
import { readBody } from "./body.ts";
import { BODY_BYTES_MAX } from "./bounds.ts";
import { startExchange } from "./exchange.ts";
import { type Decision, setDecisionHeaders } from "./headers.ts";
import { LedgerLine } from "./ledger-line.ts";
import { Meter } from "./meter.ts";
import { explain, type GatewayRefusal, refuse } from "./refusal.ts";
import { newRequestId } from "./request-id.ts";

export interface Context {
  readonly env: Cloudflare.Env;
  readonly settings: Settings;
  readonly waitUntil: (work: Promise<unknown>) => void;
}

/** A step's result: what the next step needs, or the refusal that ends it. */
type Step<T> = ({ readonly ok: true } & T) | { readonly ok: false; readonly refusal: GatewayRefusal };

const no = (refusal: GatewayRefusal): { readonly ok: false; readonly refusal: GatewayRefusal } => ({
  ok: false,
  refusal,
});

export async function handle(
  request: Request,
  tenant: string,
  dialect: Dialect,
  context: Context,
): Promise<Response> {
  const requestId = newRequestId();
  const admissible = await authorise(request, tenant, context.settings);
  if (!admissible.ok) return refuse(dialect, requestId, admissible.refusal);
  const { caller, policy } = admissible;
  const read = await describe(request, dialect);
  if (!read.ok) return refuse(dialect, requestId, read.refusal);
  const call = resolve(request, read.chat, caller, context.settings);
  if (!call.ok) return refuse(dialect, requestId, call.refusal);
  const counter = await loadCounter(call.target.model.encoding);
  const reserve = reserveCommand(requestId, dialect, call, policy, counter);
  return admit(request, dialect, context, { call, counter, policy, reserve, tenant });
}

interface Call {
  readonly chat: ChatRequest;
  readonly caller: Caller;
  readonly target: ResolvedModel;
  readonly routeName: string;
  readonly route: RoutePolicy;
  readonly secret: string;
}

export async function authorise(
  request: Request,
  tenant: string,
  settings: Settings,
): Promise<Step<{ caller: Caller; policy: LedgerPolicy }>> {
  const authenticated = await authenticate(request.headers, tenant, settings.keySecret, Date.now());
  if (!authenticated.ok) return no(authenticated);
  const policy = resolveTenant(settings.policy, tenant, settings.policyHash, settings.policyEpoch);
  if (policy === null)
    return no({ code: "forbidden", message: `The policy does not list the tenant ${tenant}.` });
  return { ok: true, caller: authenticated.caller, policy };
}

async function describe(request: Request, dialect: Dialect): Promise<Step<{ chat: ChatRequest }>> {
  const body = await readBody(request, BODY_BYTES_MAX);
  if (!body.ok) {
    return body.reason === "too_large"
      ? no({ code: "body_too_large", message: `The body is larger than ${BODY_BYTES_MAX} bytes.` })
      : no({ code: "invalid_request", message: "The body is not UTF-8." });
  }
  const described = dialect.describe(body.text);
  if (described.ok) return { ok: true, chat: described.request };
  const { message, param } = described.malformed;
  return no({ code: "invalid_request", message, param });
}

function resolve(request: Request, chat: ChatRequest, caller: Caller, settings: Settings): Step<Call> {
  const { policy, providerSecrets } = settings;
  const routeName = request.headers.get("x-weir-route") ?? "default";
  const route = resolveRoute(policy, routeName);
  if (route === null)
    return no({ code: "unknown_route", message: `The policy has no route ${JSON.stringify(routeName)}.` });
  const target = resolveModel(policy, chat.model);
  if (target === null) {
    const message = `The policy has no model ${JSON.stringify(chat.model)}.`;
    return no({ code: "unknown_model", message, param: "model" });
  }
  const asked = request.headers.get("x-weir-class");
  if (asked !== null && asked !== "interactive" && asked !== "batch") {
    return no({
      code: "invalid_request",
      message: `x-weir-class: expected interactive or batch, got ${JSON.stringify(asked)}.`,
    });
  }
  const requestClass = lowestClass(caller.class, route.class, asked ?? undefined);
  // Settings are only complete with every secret that the policy names.
  const secret = providerSecrets.get(target.provider.apiKeySecret) ?? "";
  return { ok: true, chat, caller: { ...caller, class: requestClass }, target, routeName, route, secret };
}

/** What no answer of this call may exceed: the route's ceiling, within the model's. */
function outputCeiling({ route, target }: Call): number {
  return Math.min(route.maxOutputTokens ?? target.model.maxOutputTokens, target.model.maxOutputTokens);
}

function reserveCommand(
  requestId: string,
  dialect: Dialect,
  call: Call,
  policy: LedgerPolicy,
  counter: Counter,
): Reserve {
  const { chat, caller, target, route, routeName } = call;
  const counted = dialect.countInput(chat, counter).inputTokens;
  const ceiling = outputCeiling(call);
  const declared = chat.declaredOutputTokens !== null || route.injectMaxOutputTokens;
  // A ceiling that is not written into the request binds nobody: the provider's own is then the worst case.
  const perCompletion = declared
    ? Math.min(chat.declaredOutputTokens ?? ceiling, ceiling)
    : target.model.maxOutputTokens;
  return {
    type: "reserve",
    requestId,
    policyHash: policy.hash,
    policyEpoch: policy.epoch,
    route: routeName,
    model: target.id,
    class: caller.class,
    keyId: caller.keyId,
    inputTokens: target.estimated ? Math.ceil(counted * UNKNOWN_MODEL_SAFETY) : counted,
    maxOutputTokens: perCompletion * chat.completions,
    outputDeclared: declared,
    perRequestMaxTokens: perRequestMaxTokens(route, policy.limits),
    dispatch: true,
  };
}

/** For a vocabulary that is only assumed. */
const UNKNOWN_MODEL_SAFETY = 1.2;

interface Admission {
  readonly call: Call;
  readonly counter: Counter;
  readonly policy: LedgerPolicy;
  readonly reserve: Reserve;
  readonly tenant: string;
}

async function admit(
  request: Request,
  dialect: Dialect,
  context: Context,
  admission: Admission,
): Promise<Response> {
  const { policy, reserve, tenant } = admission;
  const { requestId } = reserve;
  const line = new LedgerLine(context.env.TENANT_LEDGER, tenant);
  const verdict = line.reserve(reserve, policy).catch((error: unknown) => {
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
  reply: Awaited<ReturnType<LedgerLine["reserve"]>> | null,
): Promise<Response> {
  const { policy, reserve, tenant } = admission;
  const { requestId } = reserve;
  const decision = (event: Reserved | Refused): Decision => {
    const { hold, standings } = event;
    return {
      requestId,
      policy,
      standings,
      heldTokens: hold === null ? null : hold.inputTokens + hold.outputTokens,
    };
  };
  if (reply?.type === "refused") {
    line.close();
    const headers = new Headers();
    setDecisionHeaders(headers, { ...decision(reply), heldTokens: null });
    return refuse(dialect, requestId, explain(reply, tenant), headers);
  }
  if (reply?.type !== "reserved") {
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
  const { answer, done } = startExchange(exchangeOf(request, dialect, admission, line, reply));
  context.waitUntil(done);
  const answered = await answer;
  const headers = answered.ok ? answered.response.headers : new Headers();
  setDecisionHeaders(headers, decision(reply));
  return answered.ok ? answered.response : refuse(dialect, requestId, answered.refusal, headers);
}

function exchangeOf(
  request: Request,
  dialect: Dialect,
  { call, counter, reserve }: Admission,
  line: LedgerLine,
  lease: Reserved,
): Parameters<typeof startExchange>[0] {
  const { chat, target, route, secret } = call;
  const { provider } = target;
  const edited = dialect.edit(chat, {
    maxOutputTokens: outputCeiling(call),
    injectCeilingAs: route.injectMaxOutputTokens ? provider.outputCeilingMember : null,
    includeUsage: provider.streamOptions,
  });
  const { requestId } = lease;
  return {
    lease,
    line,
    meter: new Meter(dialect, counter, reserve.inputTokens),
    upstream: {
      provider,
      dialect,
      secret,
      headers: request.headers,
      body: edited.text,
      requestId,
      abort: new AbortController(),
    },
    stripUsage: edited.stripUsage,
    signal: request.signal,
  };
}
