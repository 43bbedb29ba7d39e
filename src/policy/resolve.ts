/** From the policy document to what one tenant and one request are judged by. */
import type { Limit, LimitOverride } from "./limit-schema.ts";
import type { ModelPolicy, Policy, ProviderPolicy, RequestClass, RoutePolicy } from "./schema.ts";

/** What a tenant's ledger needs of a policy, and all it needs: plain data that crosses to the object. */
export interface LedgerPolicy {
  /** Names the content. */
  readonly hash: string;
  /** Orders contents: a ledger keeps the newest. */
  readonly epoch: number;
  readonly limits: readonly Limit[];
  readonly queue: { readonly lengthMax: number; readonly tokensMax: number | null };
  readonly leaseTtlMs: number;
  readonly reconcileAgeMaxMs: number;
  readonly reconcileCharge: Policy["reconcileCharge"];
}

/** Null when the policy does not list the tenant (and has no `*`). */
export function resolveTenant(
  policy: Policy,
  tenant: string,
  hash: string,
  epoch: number,
): LedgerPolicy | null {
  const entry = own(policy.tenants, tenant) ?? own(policy.tenants, "*");
  if (entry === null) return null;
  return {
    hash,
    epoch,
    limits: policy.limits.map((limit) => overridden(limit, own(entry.overrides, limit.name))),
    queue: policy.queue,
    leaseTtlMs: policy.leaseTtlMs,
    reconcileAgeMaxMs: policy.reconcileAgeMaxMs,
    reconcileCharge: policy.reconcileCharge,
  };
}

function overridden(limit: Limit, override: LimitOverride | null): Limit {
  return override === null ? limit : ({ ...limit, ...override } as Limit);
}

export interface ResolvedModel {
  /** Keys every limit and label, whatever spelling the caller used. */
  readonly id: string;
  readonly model: ModelPolicy;
  readonly provider: ProviderPolicy;
  /** The name is not in the policy and was taken by `*`. */
  readonly estimated: boolean;
}

/** Trimmed, lower-cased, through aliases, and `ft:base:…` (or `base:ft-…`) as its base. Null when unknown. */
export function resolveModel(policy: Policy, written: string): ResolvedModel | null {
  const spelled = written.trim().toLowerCase();
  for (const candidate of [spelled, baseOfFineTune(spelled)]) {
    if (candidate === null) continue;
    for (const [id, model] of Object.entries(policy.models)) {
      if (id === "*") continue;
      if (
        id.toLowerCase() === candidate ||
        model.aliases.some((alias) => alias.toLowerCase() === candidate)
      ) {
        return withProvider(policy, id, model, false);
      }
    }
  }
  const any = policy.models["*"];
  return any === undefined ? null : withProvider(policy, "*", any, true);
}

function baseOfFineTune(spelled: string): string | null {
  const parts = spelled.split(":");
  if (parts[0] === "ft" && parts[1] !== undefined) return parts[1];
  return parts.length > 1 && parts[1]?.startsWith("ft-") ? (parts[0] ?? null) : null;
}

function withProvider(
  policy: Policy,
  id: string,
  model: ModelPolicy,
  estimated: boolean,
): ResolvedModel | null {
  const provider = policy.providers[model.provider];
  return provider === undefined ? null : { id, model, provider, estimated };
}

/** Null when the policy has no such route. */
export function resolveRoute(policy: Policy, route: string): RoutePolicy | null {
  return own(policy.routes, route);
}

/** Names come from callers: `constructor` is nobody's tenant. */
function own<T>(record: Readonly<Record<string, T>>, name: string): T | null {
  return Object.hasOwn(record, name) ? (record[name] ?? null) : null;
}

/** What a token of a model costs, in millionths of a millionth of a dollar, so that money stays whole. */
export interface Price {
  readonly inputPicoUsd: number;
  readonly cachedInputPicoUsd: number;
  readonly outputPicoUsd: number;
}

/** Null for a model without a price: no limit counts money then. */
export function resolvePrice({ price }: ModelPolicy): Price | null {
  if (price === undefined) return null;
  const pico = (usdPerMillion: number) => Math.round(usdPerMillion * 1_000_000);
  return {
    inputPicoUsd: pico(price.input),
    cachedInputPicoUsd: pico(price.cachedInput ?? price.input),
    outputPicoUsd: pico(price.output),
  };
}

/** A header or a route may lower the class that the key allows, never raise it. */
export function lowestClass(...classes: readonly (RequestClass | undefined)[]): RequestClass {
  return classes.includes("batch") ? "batch" : "interactive";
}

/** The most that one request of this route may hold, input and output together; null without a ceiling. */
export function perRequestMaxTokens(route: RoutePolicy, limits: readonly Limit[]): number | null {
  const ceilings: number[] = [];
  if (route.perRequestMaxTokens !== null) ceilings.push(route.perRequestMaxTokens);
  const smallest = smallestTokensCapacity(limits);
  if (route.perRequestMaxFraction !== null && smallest !== null)
    ceilings.push(Math.floor(smallest * route.perRequestMaxFraction));
  return ceilings.length === 0 ? null : Math.min(...ceilings);
}

/** Null when no bucket bounds tokens. */
export function smallestTokensCapacity(limits: readonly Limit[]): number | null {
  let smallest: number | null = null;
  for (const limit of limits) {
    if (limit.kind !== "bucket" || limit.unit !== "tokens" || limit.capacity === null) continue;
    if (smallest === null || limit.capacity < smallest) smallest = limit.capacity;
  }
  return smallest;
}
