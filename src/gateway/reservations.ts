/**
 * The protocol itself, for callers who make their own calls to a provider: the same commands, on leases
 * that only the key which reserved them can move. Over HTTP and over RPC alike.
 */
import type { TenantLedger } from "../../durable-objects/tenant-ledger.ts";
import type { LeaseCommand, Reserve } from "../ledger/commands.ts";
import type { LedgerEvent, Queued, Refused, Reserved } from "../ledger/types.ts";
import type { Reservation } from "../ledger/view.ts";
import {
  type LedgerPolicy,
  perRequestMaxTokens,
  resolveModel,
  resolvePrice,
  resolveRoute,
} from "../policy/resolve.ts";
import type { Settings } from "../settings.ts";
import { classOf, HeaderProblem, idempotencyOf, queueMsOf, scopeOf } from "./asking.ts";
import type { Caller } from "./auth.ts";
import { type Decision, decisionOf } from "./headers.ts";
import { LedgerLine, ledgerOf } from "./ledger-line.ts";
import { explain, type GatewayRefusal } from "./refusal.ts";
import { newRequestId } from "./request-id.ts";
import { isReservationId, parse, ReserveBody, type Verb, VerbBody } from "./reservation-schema.ts";

/** Who asks, and of which ledger. */
export interface Asker {
  readonly tenant: string;
  readonly caller: Caller;
  readonly policy: LedgerPolicy;
  readonly settings: Settings;
  readonly ledgers: DurableObjectNamespace<TenantLedger>;
  /** Fires when the caller has gone, where that can be known. */
  readonly signal: AbortSignal;
}

export type Answer<T> =
  | { readonly ok: true; readonly value: T; readonly decision: Decision | null }
  | { readonly ok: false; readonly refusal: GatewayRefusal; readonly decision: Decision | null };

export interface Granted {
  readonly id: string;
  readonly fence: number;
  readonly state: Reservation["state"];
  readonly heldTokens: number;
  readonly expiresAtMs: number;
  readonly rung: "FULL";
}

/** What would become of a reserve. */
export type Decided =
  | { readonly outcome: "reserved"; readonly heldTokens: number; readonly rung: "FULL" }
  | {
      readonly outcome: "queued";
      readonly heldTokens: number;
      readonly predictedWaitMs: number;
      readonly limit: string;
    }
  | { readonly outcome: "refused"; readonly refusal: GatewayRefusal };

const no = (refusal: GatewayRefusal, decision: Decision | null = null) =>
  ({ ok: false, refusal, decision }) as const;

export async function reserve(
  asker: Asker,
  body: unknown,
  idempotencyKey: string | null,
): Promise<Answer<Granted>> {
  const { ledgers, tenant, policy, signal, caller } = asker;
  const command = await reserveCommand(asker, body, idempotencyKey);
  if ("code" in command) return no(command);
  const line = new LedgerLine(ledgers, tenant);
  try {
    const reply = await line.reserve(command, policy, signal);
    switch (reply.type) {
      case "reserved": {
        // Whoever has gone cannot answer for it: the session's end gives it back whole.
        if (!signal.aborted) await line.keep();
        return { ok: true, value: grantedOf(reply), decision: decisionOf(reply, policy) };
      }
      case "refused":
        return no(explain(reply, tenant), decisionOf(reply, policy));
      case "unchanged":
        return await repeated(asker, reply.requestId ?? "", caller.keyId);
      default:
        return no({ code: "deadline_exceeded", message: "The caller left the queue." });
    }
  } finally {
    line.close();
  }
}

/** The same key and body again: the lease of the first. */
async function repeated({ ledgers, tenant }: Asker, id: string, keyId: string): Promise<Answer<Granted>> {
  const lease = await ledgerOf(ledgers, tenant).reservation(id, keyId);
  if (lease === null) {
    const message = "A request with this idempotency key is still waiting.";
    return no({ code: "request_in_progress", message });
  }
  const { fence, state, heldTokens, expiresAtMs } = lease;
  return { ok: true, value: { id, fence, state, heldTokens, expiresAtMs, rung: "FULL" }, decision: null };
}

/** Changes nothing; what is refused here would be refused there, for the same reason. */
export async function decide(asker: Asker, body: unknown): Promise<Answer<Decided>> {
  const { ledgers, tenant, policy } = asker;
  const command = await reserveCommand(asker, body, null);
  if ("code" in command) return no(command);
  const ledger = ledgerOf(ledgers, tenant);
  await ledger.run({ type: "set_policy", policy });
  const reply = (await ledger.preview(command)) as LedgerEvent;
  if (reply.type !== "reserved" && reply.type !== "queued" && reply.type !== "refused")
    throw new Error(`a preview answered ${reply.type}`);
  const decision = reply.type === "queued" ? null : decisionOf(reply, policy);
  return { ok: true, value: decidedOf(reply, tenant), decision };
}

function decidedOf(reply: Reserved | Queued | Refused, tenant: string): Decided {
  if (reply.type === "refused") return { outcome: "refused", refusal: explain(reply, tenant) };
  const heldTokens = reply.hold.inputTokens + reply.hold.outputTokens;
  if (reply.type === "reserved") return { outcome: "reserved", heldTokens, rung: reply.rung };
  const { predictedWaitMs, limit } = reply;
  return { outcome: "queued", heldTokens, predictedWaitMs, limit };
}

export async function act(asker: Asker, verb: Verb, id: string, body: unknown): Promise<Answer<Reservation>> {
  const { ledgers, tenant, caller } = asker;
  if (!isReservationId(id)) return no(strangeId(id));
  const command = commandOf(verb, id, body);
  if ("code" in command) return no(command);
  const outcome = await ledgerOf(ledgers, tenant).act(command, caller.keyId);
  if (outcome === null) return no(unknownId(id));
  const { event, reservation } = outcome;
  if (event.type === "refused") return no(explain(event, tenant));
  return { ok: true, value: reservation, decision: null };
}

export async function look({ ledgers, tenant, caller }: Asker, id: string): Promise<Answer<Reservation>> {
  if (!isReservationId(id)) return no(strangeId(id));
  const reservation = await ledgerOf(ledgers, tenant).reservation(id, caller.keyId);
  return reservation === null ? no(unknownId(id)) : { ok: true, value: reservation, decision: null };
}

const unknownId = (id: string): GatewayRefusal => ({
  code: "unknown_reservation",
  message: `The ledger does not know the reservation ${id}, or no longer does.`,
});

const strangeId = (id: string): GatewayRefusal => ({
  code: "invalid_request",
  message: `id: expected 1 to 64 letters, digits, - and _, got ${JSON.stringify(id.slice(0, 80))}.`,
  param: "id",
});

/** The command, or why there can be none. */
function commandOf(verb: Verb, requestId: string, body: unknown): LeaseCommand | GatewayRefusal {
  const invalid = (message: string): GatewayRefusal => ({ code: "invalid_request", message });
  switch (verb) {
    case "dispatch": {
      const parsed = parse(VerbBody.dispatch, body);
      return parsed.ok ? { type: "dispatch", requestId, ...parsed.value } : invalid(parsed.message);
    }
    case "running": {
      const parsed = parse(VerbBody.running, body);
      return parsed.ok ? { type: "running", requestId, ...parsed.value } : invalid(parsed.message);
    }
    case "capture": {
      const parsed = parse(VerbBody.capture, body);
      if (!parsed.ok) return invalid(parsed.message);
      const { fence, usageEventId, usage: size } = parsed.value;
      return { type: "capture", requestId, fence, usageEventId, size };
    }
    case "top-up": {
      const parsed = parse(VerbBody["top-up"], body);
      return parsed.ok ? { type: "top_up", requestId, ...parsed.value } : invalid(parsed.message);
    }
    case "settle": {
      const parsed = parse(VerbBody.settle, body);
      if (!parsed.ok) return invalid(parsed.message);
      return { type: "settle", requestId, ...parsed.value, basis: "exact" };
    }
    case "release": {
      const parsed = parse(VerbBody.release, body);
      if (!parsed.ok) return invalid(parsed.message);
      const { fence, evidence = null } = parsed.value;
      return { type: "release", requestId, fence, evidence };
    }
  }
}

async function reserveCommand(
  { caller, policy, settings }: Asker,
  body: unknown,
  idempotencyKey: string | null,
): Promise<Reserve | GatewayRefusal> {
  const parsed = parse(ReserveBody, body);
  if (!parsed.ok) return { code: "invalid_request", message: parsed.message };
  const asked = parsed.value;
  const route = resolveRoute(settings.policy, asked.route);
  if (route === null)
    return {
      code: "unknown_route",
      message: `The policy has no route ${JSON.stringify(asked.route)}.`,
      param: "route",
    };
  const target = resolveModel(settings.policy, asked.model);
  if (target === null)
    return {
      code: "unknown_model",
      message: `The policy has no model ${JSON.stringify(asked.model)}.`,
      param: "model",
    };
  // The gateway cannot write the ceiling into a request that it does not send.
  if (route.maxOutputTokens !== null && asked.maxOutputTokens > route.maxOutputTokens) {
    const message = `maxOutputTokens: the route ${asked.route} allows ${route.maxOutputTokens}, and ${asked.maxOutputTokens} is asked.`;
    return { code: "request_too_large", message, param: "maxOutputTokens" };
  }
  const requestClass = classOf(asked.class ?? null, caller, route);
  if (requestClass instanceof HeaderProblem)
    return { code: "invalid_request", message: requestClass.message };
  const queueMs = queueMsOf(asked.deadlineMs === undefined ? null : String(asked.deadlineMs), route);
  if (queueMs instanceof HeaderProblem) return { code: "invalid_request", message: queueMs.message };
  const idempotency = await idempotencyOf(idempotencyKey, caller, asked, "same_lease");
  if (idempotency instanceof HeaderProblem) return { code: "invalid_request", message: idempotency.message };
  return {
    type: "reserve",
    requestId: newRequestId(),
    policyHash: policy.hash,
    policyEpoch: policy.epoch,
    scope: scopeOf(caller, requestClass, asked.route, target),
    class: requestClass,
    inputTokens: asked.inputTokens,
    counted: null,
    maxOutputTokens: Math.min(asked.maxOutputTokens, target.model.maxOutputTokens),
    outputDeclared: true,
    price: resolvePrice(target.model),
    perRequestMaxTokens: perRequestMaxTokens(route, policy.limits),
    dispatch: false,
    queueMs,
    idempotency,
  };
}

function grantedOf({ requestId, fence, state, hold, expiresAtMs, rung }: Reserved): Granted {
  const heldTokens = hold.inputTokens + hold.outputTokens;
  return { id: requestId, fence, state, heldTokens, expiresAtMs, rung };
}
