/**
 * One request, from the edge to settlement. Read this first.
 *
 *   authenticate → read → describe → resolve → count → admit (reserve) → exchange (dispatch, meter, settle)
 *
 * Until `reserve` answers nothing is held and every refusal is free. From then on the lease is the
 * exchange's, which settles it whatever happens; it is registered with `waitUntil` before we answer.
 */
import type { Reserve } from "../ledger/commands.ts";
import {
  type LedgerPolicy,
  perRequestMaxTokens,
  resolveModel,
  resolvePrice,
  resolveRoute,
  resolveTenant,
} from "../policy/resolve.ts";
import type { ChatRequest, Dialect, Excess } from "../providers/dialect.ts";
import { DIALECTS, type Endpoint } from "../providers/registry.ts";
import type { Settings } from "../settings.ts";
import type { Counter } from "../tokens/counter.ts";
import { loadCounter } from "../tokens/encodings.ts";
import { admit } from "./admit.ts";
import { askCount } from "./ask-count.ts";
import { classOf, HeaderProblem, idempotencyOf, queueMsOf, scopeOf } from "./asking.ts";
import { authenticate, type Caller } from "./auth.ts";
import { readBody } from "./body.ts";
import { BODY_BYTES_MAX } from "./bounds.ts";
import type { Call, Context } from "./call.ts";
import { type GatewayRefusal, refuse } from "./refusal.ts";
import { newRequestId } from "./request-id.ts";
import { countTermsOf, editBody, isCount, NO_SIZE, type Size, sizeOf } from "./size.ts";

/** A step's result: what the next step needs, or the refusal that ends it. */
type Step<T> = ({ readonly ok: true } & T) | { readonly ok: false; readonly refusal: GatewayRefusal };

const no = (refusal: GatewayRefusal): { readonly ok: false; readonly refusal: GatewayRefusal } => ({
  ok: false,
  refusal,
});

export async function handle(
  request: Request,
  tenant: string,
  endpoint: Endpoint,
  context: Context,
): Promise<Response> {
  const { dialect } = endpoint;
  const requestId = newRequestId();
  const admissible = await authorise(request, tenant, context.settings, endpoint);
  if (!admissible.ok) return refuse(dialect, requestId, admissible.refusal);
  const { caller, policy } = admissible;
  const read = await describe(request, endpoint);
  if (!read.ok) return refuse(dialect, requestId, read.refusal);
  const call = await resolve(request, dialect, read.chat, caller, context.settings);
  if (!call.ok) return refuse(dialect, requestId, call.refusal);
  const counter = await loadCounter(call.target.model.encoding, policy.hash);
  const counted = await count(request, dialect, call, counter, requestId);
  if (!counted.ok) return refuse(dialect, requestId, counted.refusal);
  const reserve = reserveCommand(requestId, call, policy, counted.size);
  const edited = editBody(dialect, call);
  return admit(request, dialect, context, { call, counter, policy, reserve, edited, tenant });
}

export async function authorise(
  request: Request,
  tenant: string,
  settings: Settings,
  endpoint: Endpoint | null = null,
): Promise<Step<{ caller: Caller; policy: LedgerPolicy }>> {
  const { headers } = request;
  const inQuery = endpoint === null ? [] : queryCredentials(endpoint);
  const authenticated = await authenticate(headers, inQuery, tenant, settings.keySecret, Date.now());
  if (!authenticated.ok) return no(authenticated);
  const policy = resolveTenant(settings.policy, tenant, settings.policyHash, settings.policyEpoch);
  if (policy === null)
    return no({ code: "forbidden", message: `The policy does not list the tenant ${tenant}.` });
  return { ok: true, caller: authenticated.caller, policy };
}

function queryCredentials({ dialect, target }: Endpoint): string[] {
  const { queryCredential: name } = dialect;
  return name === null ? [] : target.query.getAll(name).filter((key) => key !== "");
}

async function describe(
  request: Request,
  { dialect, target }: Endpoint,
): Promise<Step<{ chat: ChatRequest }>> {
  const body = await readBody(request, BODY_BYTES_MAX);
  if (!body.ok) {
    return body.reason === "too_large"
      ? no({ code: "body_too_large", message: `The body is larger than ${BODY_BYTES_MAX} bytes.` })
      : no({ code: "invalid_request", message: "The body is not UTF-8." });
  }
  const described = dialect.describe(body.text, target);
  if (described.ok) return { ok: true, chat: described.request };
  const { message, param } = described.malformed;
  return no({ code: "invalid_request", message, param });
}

async function resolve(
  request: Request,
  dialect: Dialect,
  chat: ChatRequest,
  caller: Caller,
  settings: Settings,
): Promise<Step<Call>> {
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
  const spoken = target.provider.dialect;
  if (!DIALECTS[spoken].includes(dialect)) {
    const message = `The model ${JSON.stringify(chat.model)} is at a provider of the dialect ${spoken}, and this request is ${dialect.name}.`;
    return no({ code: "invalid_request", message, param: "model" });
  }
  const { headers } = request;
  const requestClass = classOf(headers.get("x-weir-class"), caller, route);
  if (requestClass instanceof HeaderProblem) return no(invalid(requestClass));
  const queueMs = queueMsOf(headers.get("x-weir-deadline-ms"), route);
  if (queueMs instanceof HeaderProblem) return no(invalid(queueMs));
  const key = headers.get("idempotency-key");
  const idempotency = await idempotencyOf(key, caller, chat.members, "new_attempt");
  if (idempotency instanceof HeaderProblem) return no(invalid(idempotency));
  // Settings are only complete with every secret that the policy names.
  const secret = providerSecrets.get(target.provider.apiKeySecret) ?? "";
  const asking = { class: requestClass, queueMs, idempotency };
  return { ok: true, chat, caller, target, routeName, route, secret, asking };
}

const invalid = ({ message }: HeaderProblem): GatewayRefusal => ({ code: "invalid_request", message });

const tooLarge = ({ param, what, requested, available }: Excess): GatewayRefusal => ({
  code: "request_too_large",
  message: `${param}: the provider takes at most ${available} ${what}, and this request has ${requested}.`,
  param,
  amounts: { requested, available },
  advice: "Divide it into several requests.",
});

async function count(
  request: Request,
  dialect: Dialect,
  call: Call,
  counter: Counter,
  requestId: string,
): Promise<Step<{ size: Size }>> {
  if (isCount(call.chat)) return { ok: true, size: NO_SIZE };
  const { excess, ...input } = dialect.countInput(call.chat, counter, countTermsOf(call));
  if (excess !== undefined) return no(tooLarge(excess));
  const { by, onUnavailable } = call.route.inputCount;
  if (by === "gateway" || dialect.countEndpoint === null)
    return { ok: true, size: sizeOf(dialect, call, input, counter) };
  const asked = await askCount(dialect, call, request, requestId);
  if (asked === null && onUnavailable === "refuse") {
    const message =
      "The provider did not say how large the prompt is, and this route sends nothing uncounted.";
    return no({ code: "provider_unreachable", message });
  }
  return { ok: true, size: sizeOf(dialect, call, input, counter, asked) };
}

function reserveCommand(requestId: string, call: Call, policy: LedgerPolicy, size: Size): Reserve {
  const { caller, target, route, routeName, asking } = call;
  return {
    type: "reserve",
    requestId,
    policyHash: policy.hash,
    policyEpoch: policy.epoch,
    scope: scopeOf(caller, asking.class, routeName, target),
    class: asking.class,
    ...size,
    price: resolvePrice(target.model),
    perRequestMaxTokens: perRequestMaxTokens(route, policy.limits),
    dispatch: true,
    queueMs: asking.queueMs,
    idempotency: asking.idempotency,
  };
}
