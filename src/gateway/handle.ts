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
import type { ChatRequest, Dialect, EditedBody, Excess } from "../providers/dialect.ts";
import type { Settings } from "../settings.ts";
import { loadCounter } from "../tokens/encodings.ts";
import { admit } from "./admit.ts";
import { classOf, HeaderProblem, idempotencyOf, queueMsOf, scopeOf } from "./asking.ts";
import { authenticate, type Caller } from "./auth.ts";
import { readBody } from "./body.ts";
import { BODY_BYTES_MAX } from "./bounds.ts";
import type { Call, Context } from "./call.ts";
import { type GatewayRefusal, refuse } from "./refusal.ts";
import { newRequestId } from "./request-id.ts";

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
  const call = await resolve(request, read.chat, caller, context.settings);
  if (!call.ok) return refuse(dialect, requestId, call.refusal);
  const counter = await loadCounter(call.target.model.encoding);
  const counted = dialect.countInput(call.chat, counter, call.route.unseenInputTokens);
  if (counted.excess !== undefined) return refuse(dialect, requestId, tooLarge(counted.excess));
  const reserve = reserveCommand(requestId, dialect, call, policy, counted.inputTokens);
  const edited = editBody(dialect, call);
  return admit(request, dialect, context, { call, counter, policy, reserve, edited, tenant });
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

async function resolve(
  request: Request,
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

/** What no answer of this call may exceed: the route's ceiling, within the model's, and none that the provider refuses. */
function outputCeiling(dialect: Dialect, { route, target }: Call): number {
  const ceiling = Math.min(
    route.maxOutputTokens ?? target.model.maxOutputTokens,
    target.model.maxOutputTokens,
  );
  return Math.max(ceiling, dialect.outputCeilingMin ?? 0);
}

function reserveCommand(
  requestId: string,
  dialect: Dialect,
  call: Call,
  policy: LedgerPolicy,
  counted: number,
): Reserve {
  const { chat, caller, target, route, routeName, asking } = call;
  const ceiling = outputCeiling(dialect, call);
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
    scope: scopeOf(caller, asking.class, routeName, target),
    class: asking.class,
    inputTokens: target.estimated ? Math.ceil(counted * UNKNOWN_MODEL_SAFETY) : counted,
    maxOutputTokens: perCompletion * chat.completions,
    outputDeclared: declared,
    price: resolvePrice(target.model),
    perRequestMaxTokens: perRequestMaxTokens(route, policy.limits),
    dispatch: true,
    queueMs: asking.queueMs,
    idempotency: asking.idempotency,
  };
}

function editBody(dialect: Dialect, call: Call): EditedBody {
  const { chat, route, target } = call;
  return dialect.edit(chat, {
    maxOutputTokens: outputCeiling(dialect, call),
    injectCeilingAs: route.injectMaxOutputTokens ? target.provider.outputCeilingMember : null,
    includeUsage: target.provider.streamOptions,
  });
}

/** For a vocabulary that is only assumed. */
const UNKNOWN_MODEL_SAFETY = 1.2;
