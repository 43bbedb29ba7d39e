/**
 * The state as plain data and back: what a checkpoint holds. `restore(snapshot(state))` is `state`, but for
 * the queue, which nobody was promised. Leases are tuples, because a restart reads ten thousand of them.
 */
import type { Drift } from "../estimator/drift.ts";
import type { Limit, Scope } from "../policy/limit-schema.ts";
import type { LedgerPolicy, Price } from "../policy/resolve.ts";
import type { RequestClass } from "../policy/schema.ts";
import type { Idempotency } from "./commands.ts";
import type { Definition, LimitState } from "./limits.ts";
import { emptyState, type Lease, type LedgerState, type Means, queueOf, type Settlement } from "./state.ts";
import type { LeaseState, Span } from "./types.ts";

type LimitRecord = Omit<LimitState, "definition"> & { readonly name: string };

/** In this order; `scope`, `price` and `charges` point into the snapshot's tables. */
type LeaseRecord = readonly [
  requestId: string,
  fence: number,
  state: LeaseState,
  scope: number,
  requestClass: RequestClass,
  price: number,
  perRequestMaxTokens: number | null,
  reservedAtMs: number,
  acceptMs: number,
  ttlMs: number,
  expiresAtMs: number,
  holdInput: number,
  holdOutput: number,
  capturedInput: number,
  capturedOutput: number,
  /** Limit, generation, amount, spent; and so on. */
  charges: readonly number[],
  lastUsageEventId: string | null,
  providerRequestId: string | null,
  settlement: Settlement | null,
  idempotency: Idempotency | null,
  proxied: 0 | 1,
  reconcileMs: number,
  countedTokens: number | null,
];

export interface Snapshot {
  readonly nowMs: number;
  readonly policy: LedgerPolicy | null;
  readonly generation: number;
  readonly means: Means;
  /** By model, in the order in which they were taught. */
  readonly drifts: readonly (readonly [string, Drift])[];
  readonly inFlightTokens: number;
  readonly reconcilingTokens: number;
  readonly definitions: readonly {
    readonly spec: Limit;
    readonly generation: number;
    readonly span: Span | null;
  }[];
  readonly limits: readonly LimitRecord[];
  readonly keys: readonly string[];
  readonly scopes: readonly Scope[];
  readonly prices: readonly (Price | null)[];
  /** Idempotency keys, with the newest lease of each. */
  readonly idempotencyKeys: readonly (readonly [string, string])[];
  /** Queue by queue, each in its order. */
  readonly leases: readonly LeaseRecord[];
}

export function snapshot(state: LedgerState): Snapshot {
  const keys = new Table<string>((key) => key);
  const scopes = new Table<Scope>((scope) => JSON.stringify(scope));
  const prices = new Table<Price | null>((price) => JSON.stringify(price));
  const leases: LeaseRecord[] = [];
  for (const queue of [...state.open.values(), ...state.reconciling.values(), state.closed]) {
    for (const lease of queue) leases.push(recordOf(lease, keys, scopes, prices));
  }
  const { nowMs, policy, generation, inFlightTokens, reconcilingTokens } = state;
  return {
    nowMs,
    policy,
    generation,
    means: { ...state.means },
    drifts: [...state.drifts],
    inFlightTokens,
    reconcilingTokens,
    definitions: [...state.definitions.values()].map((definition) => ({ ...definition })),
    limits: [...state.limits.values()].map(({ definition, ...limit }) => ({
      ...limit,
      name: definition.spec.name,
      slots: limit.slots.map((slot) => ({ ...slot })),
      stay:
        limit.stay === null
          ? null
          : { ...limit.stay, newer: { ...limit.stay.newer }, older: { ...limit.stay.older } },
    })),
    keys: keys.rows,
    scopes: scopes.rows,
    prices: prices.rows,
    idempotencyKeys: [...state.byIdempotencyKey],
    leases,
  };
}

export function restore(from: Snapshot): LedgerState {
  const state = emptyState();
  const definitions = new Map<string, Definition>();
  for (const definition of from.definitions) definitions.set(definition.spec.name, { ...definition });
  for (const { name, ...limit } of from.limits) {
    const definition = definitions.get(name);
    if (definition !== undefined) state.limits.set(limit.key, { ...limit, definition });
  }
  for (const record of from.leases) {
    const lease = leaseOf(record, from);
    state.leases.set(lease.requestId, lease);
    queueOf(state, lease).push(lease);
  }
  for (const [model, drift] of from.drifts) state.drifts.set(model, drift);
  for (const [key, requestId] of from.idempotencyKeys) state.byIdempotencyKey.set(key, requestId);
  const { nowMs, policy, generation, means, inFlightTokens, reconcilingTokens } = from;
  return Object.assign(state, {
    nowMs,
    policy,
    generation,
    definitions,
    means: { ...means },
    inFlightTokens,
    reconcilingTokens,
  });
}

function recordOf(
  lease: Lease,
  keys: Table<string>,
  scopes: Table<Scope>,
  prices: Table<Price | null>,
): LeaseRecord {
  return [
    lease.requestId,
    lease.fence,
    lease.state,
    scopes.indexOf(lease.scope),
    lease.class,
    prices.indexOf(lease.price),
    lease.perRequestMaxTokens,
    lease.reservedAtMs,
    lease.acceptMs,
    lease.ttlMs,
    lease.expiresAtMs,
    lease.hold.inputTokens,
    lease.hold.outputTokens,
    lease.captured.inputTokens,
    lease.captured.outputTokens,
    lease.charges.flatMap(({ limit, generation, amount, spent }) => [
      keys.indexOf(limit),
      generation,
      amount,
      spent,
    ]),
    lease.lastUsageEventId,
    lease.providerRequestId,
    lease.settlement,
    lease.idempotency,
    lease.proxied ? 1 : 0,
    lease.reconcileMs,
    lease.countedTokens,
  ];
}

function leaseOf(record: LeaseRecord, { keys, scopes, prices }: Snapshot): Lease {
  const flat = record[15];
  const charges = [];
  for (let i = 0; i < flat.length; i += 4) {
    const [limit = 0, generation = 0, amount = 0, spent = 0] = flat.slice(i, i + 4);
    charges.push({ limit: keys[limit] ?? "", generation, amount, spent });
  }
  const scope = scopes[record[3]];
  if (scope === undefined) throw new Error(`the checkpoint has a lease without a scope: ${record[0]}`);
  return {
    requestId: record[0],
    fence: record[1],
    state: record[2],
    scope,
    class: record[4],
    price: prices[record[5]] ?? null,
    perRequestMaxTokens: record[6],
    reservedAtMs: record[7],
    acceptMs: record[8],
    ttlMs: record[9],
    expiresAtMs: record[10],
    hold: { inputTokens: record[11], outputTokens: record[12] },
    captured: { inputTokens: record[13], outputTokens: record[14] },
    charges,
    lastUsageEventId: record[16],
    providerRequestId: record[17],
    settlement: record[18],
    idempotency: record[19],
    proxied: record[20] === 1,
    reconcileMs: record[21],
    countedTokens: record[22],
    next: null,
    previous: null,
  };
}

/** What many leases share is written once. */
class Table<T> {
  readonly rows: T[] = [];
  readonly #places = new Map<string, number>();
  readonly #nameOf: (row: T) => string;

  constructor(nameOf: (row: T) => string) {
    this.#nameOf = nameOf;
  }

  indexOf(row: T): number {
    const name = this.#nameOf(row);
    let place = this.#places.get(name);
    if (place === undefined) {
      place = this.rows.push(row) - 1;
      this.#places.set(name, place);
    }
    return place;
  }
}
