/**
 * The reservation API for other workers of the same account, by service binding: no HTTP, no key. Whoever
 * binds it names the tenant in the binding's `props`, which the platform vouches for.
 */
import { WorkerEntrypoint } from "cloudflare:workers";
import { ledgerOf } from "./gateway/ledger-line.ts";
import type { GatewayRefusal } from "./gateway/refusal.ts";
import type { Verb } from "./gateway/reservation-schema.ts";
import { type Asker, act, decide, look, reserve } from "./gateway/reservations.ts";
import { isKeyClass, isTenantName } from "./gateway/virtual-key.ts";
import { resolveTenant } from "./policy/resolve.ts";
import { settingsOf } from "./settings.ts";

/** `class` is the highest that this caller may ask for; `name` stands where a virtual key's id would. */
export interface AdmissionProps {
  readonly tenant: string;
  readonly class?: "interactive" | "batch";
  readonly name?: string;
  readonly user?: string;
}

/** Refusals are data here as everywhere: nothing is thrown but a broken configuration. */
export type ServiceAnswer<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly refusal: GatewayRefusal };

type Id = string;

export class AdmissionService extends WorkerEntrypoint<Cloudflare.Env, AdmissionProps> {
  async reserve(body: unknown, idempotencyKey: string | null = null) {
    return plain(await reserve(await this.#asker(), body, idempotencyKey));
  }

  async decide(body: unknown) {
    return plain(await decide(await this.#asker(), body));
  }

  async reservation(id: Id) {
    return plain(await look(await this.#asker(), id));
  }

  dispatch(id: Id, body: unknown) {
    return this.#act("dispatch", id, body);
  }

  running(id: Id, body: unknown) {
    return this.#act("running", id, body);
  }

  capture(id: Id, body: unknown) {
    return this.#act("capture", id, body);
  }

  topUp(id: Id, body: unknown) {
    return this.#act("top-up", id, body);
  }

  settle(id: Id, body: unknown) {
    return this.#act("settle", id, body);
  }

  release(id: Id, body: unknown) {
    return this.#act("release", id, body);
  }

  async balance() {
    const { ledgers, tenant, policy } = await this.#asker();
    const ledger = ledgerOf(ledgers, tenant);
    await ledger.run({ type: "set_policy", policy });
    return ledger.balance();
  }

  async #act(verb: Verb, id: Id, body: unknown) {
    return plain(await act(await this.#asker(), verb, id, body));
  }

  async #asker(): Promise<Asker> {
    const { tenant, class: keyClass = "interactive", name = "service", user = null } = this.ctx.props;
    if (typeof tenant !== "string" || !isTenantName(tenant))
      throw new TypeError(`props.tenant: expected a tenant's name, received ${JSON.stringify(tenant)}`);
    if (!isKeyClass(keyClass))
      throw new TypeError(`props.class: expected interactive or batch, received ${JSON.stringify(keyClass)}`);
    const parsed = await settingsOf(this.env);
    if (!parsed.ok) throw new Error(`weir is not configured: ${parsed.problems.join("; ")}`);
    const { settings } = parsed;
    const policy = resolveTenant(settings.policy, tenant, settings.policyHash, settings.policyEpoch);
    if (policy === null) throw new Error(`the policy does not list the tenant ${tenant}`);
    // A name of its own, so that no virtual key can be taken for it.
    const caller = { tenant, keyId: `service:${name}`, class: keyClass, user };
    // A caller over RPC that goes takes its context along; nobody tells us.
    const { signal } = new AbortController();
    return { tenant, caller, policy, settings, ledgers: this.env.TENANT_LEDGER, signal };
  }
}

function plain<T>(
  answer: { readonly ok: true; readonly value: T } | { readonly ok: false; readonly refusal: GatewayRefusal },
): ServiceAnswer<T> {
  return answer.ok ? { ok: true, value: answer.value } : { ok: false, refusal: answer.refusal };
}
