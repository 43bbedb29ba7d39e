/**
 * The independent model: it predicts every event of every call, from the protocol as `types.ts` tells it. Leases and
 * limits are records that are replaced and never edited, so that a copy of the whole is cheap and a crash can take
 * the model back to what was durable.
 *
 * What is a forecast (a predicted wait, and whether it is worth waiting) and what is learnt (an "auto" maximum)
 * is the ledger's own; the model holds it to its bounds. Among several leases due at once, the order is the ledger's too.
 */
import type { Command, Idempotency, Reserve } from "../../../src/ledger/commands.ts";
import type { LeaseState, LedgerEvent, Usage } from "../../../src/ledger/types.ts";
import type { Scope } from "../../../src/policy/limit-schema.ts";
import type { LedgerPolicy, Price } from "../../../src/policy/resolve.ts";
import {
  allows,
  amount,
  type Bound,
  capacity,
  couldAllow,
  free,
  give,
  type Kind,
  keyOf,
  levelAt,
  opened,
  type Size,
  take,
} from "./model-limits.ts";

export interface ModelCharge {
  readonly limit: string;
  readonly generation: number;
  readonly amount: number;
  readonly spent: number;
}

export interface ModelLease {
  readonly id: string;
  readonly fence: number;
  readonly state: LeaseState;
  readonly scope: Scope;
  readonly class: "interactive" | "batch";
  readonly price: Price | null;
  readonly ceiling: number | null;
  readonly idempotency: Idempotency | null;
  readonly reservedAtMs: number;
  readonly ttlMs: number;
  readonly hold: Size;
  readonly captured: Size;
  readonly charges: readonly ModelCharge[];
  readonly expiresAtMs: number;
  /** When it was last touched, among the others. */
  readonly touched?: number;
  readonly lastUsageEventId: string | null;
  readonly providerRequestId: string | null;
  readonly settled: { readonly usage: Usage; readonly basis: string; readonly corrected: boolean } | null;
}

export interface ModelWaiter {
  readonly command: Reserve;
  readonly hold: Size;
  readonly arrivedAtMs: number;
  readonly deadlineAtMs: number;
  readonly order: number;
}

/** Some members of an event; those that are there must be so. */
export type Expected = Readonly<Record<string, unknown>> & { readonly type: LedgerEvent["type"] };

export const KEPT_MS = 900_000;

export class Model {
  nowMs = 0;
  policy: LedgerPolicy | null = null;
  generation = 0;
  kinds = new Map<string, Kind>();
  bounds = new Map<string, Bound>();
  leases = new Map<string, ModelLease>();
  waiters: ModelWaiter[] = [];
  keys = new Map<string, string>();
  meanOutput = 0;
  order = 0;

  /** Without the queue: what a crash leaves of it, if all of it was durable. */
  copy(nowMs: number): Model {
    const copy = new Model();
    copy.nowMs = nowMs;
    copy.policy = this.policy;
    copy.generation = this.generation;
    copy.meanOutput = this.meanOutput;
    copy.order = this.order;
    copy.kinds = new Map([...this.kinds].map(([name, kind]) => [name, { ...kind }]));
    for (const [key, bound] of this.bounds) {
      const kind = copy.kinds.get(bound.kind.spec.name);
      if (kind !== undefined) copy.bounds.set(key, { ...bound, kind });
    }
    copy.leases = new Map(this.leases);
    copy.keys = new Map(this.keys);
    return copy;
  }

  bound(key: string, kind: Kind): Bound {
    return this.bounds.get(key) ?? opened(key, kind, this.nowMs);
  }

  /** What is asked of each limit that applies, in the policy's order. */
  demands(
    scope: Scope,
    price: Price | null,
    size: Size,
  ): { readonly bound: Bound; readonly wanted: number }[] {
    return [...this.kinds.values()].map((kind) => ({
      bound: this.bound(keyOf(kind.spec, scope), kind),
      wanted: amount(kind.spec, size, price),
    }));
  }

  readonly rules = { allows, couldAllow };

  enter(lease: ModelLease): void {
    this.waiters = this.waiters.filter(({ command }) => command.requestId !== lease.id);
    this.leases.set(lease.id, { ...lease, touched: (this.order += 1) });
    if (lease.idempotency !== null) this.keys.set(lease.idempotency.key, lease.id);
    this.forget();
  }

  /** A release came before its reserve: the id is closed. */
  forestall(id: string): void {
    const nothing = { inputTokens: 0, outputTokens: 0 };
    const closed = { fence: 0, state: "RELEASED", scope: NOBODY, class: "interactive" } as const;
    const never = {
      price: null,
      ceiling: null,
      idempotency: null,
      ttlMs: 0,
      charges: [],
      settled: null,
    } as const;
    this.enter({
      id,
      ...closed,
      ...never,
      reservedAtMs: this.nowMs,
      hold: nothing,
      captured: nothing,
      expiresAtMs: this.nowMs + KEPT_MS,
      lastUsageEventId: null,
      providerRequestId: null,
    });
  }

  /** With each lease that enters, the two that were closed longest ago go, if their time is up. */
  forget(): void {
    for (let gone = 0; gone < 2; gone += 1) {
      let oldest: ModelLease | null = null;
      for (const lease of this.leases.values()) {
        if (isClosed(lease) && lease.expiresAtMs <= this.nowMs && (oldest === null || before(lease, oldest)))
          oldest = lease;
      }
      if (oldest === null) return;
      this.leases.delete(oldest.id);
      const key = oldest.idempotency?.key;
      if (key !== undefined && this.keys.get(key) === oldest.id) this.keys.delete(key);
    }
  }

  put(lease: ModelLease, change: Partial<ModelLease>): ModelLease {
    const moved = { ...lease, ...change };
    const stays = moved.expiresAtMs === lease.expiresAtMs && isClosed(moved) === isClosed(lease);
    const next = stays ? moved : { ...moved, touched: (this.order += 1) };
    this.leases.set(lease.id, next);
    return next;
  }

  take(key: string, generation: number, wanted: number): void {
    const kind = this.kinds.get(key.split("|")[0] ?? "");
    if (kind?.generation === generation)
      this.bounds.set(key, take(this.bound(key, kind), wanted, this.nowMs));
  }

  /** Ends holds and charges for them, and says how each limit moved. */
  moves(
    lease: ModelLease,
    of: (charge: ModelCharge, kind: Kind) => { returned: number; spent: number; credited: number } | null,
  ): { readonly moves: object[]; readonly charges: readonly ModelCharge[] } {
    const moves: object[] = [];
    const charges = lease.charges.map((charge) => {
      const kind = this.kinds.get(charge.limit.split("|")[0] ?? "");
      if (kind?.generation !== charge.generation) return charge;
      const parts = of(charge, kind);
      if (parts === null || (parts.returned === 0 && parts.spent === 0 && parts.credited === 0))
        return charge;
      const given = give(this.bound(charge.limit, kind), parts, lease.reservedAtMs, this.nowMs);
      this.bounds.set(charge.limit, given.bound);
      moves.push({ limit: charge.limit, ...parts, forfeitedLevel: given.forfeitedLevel });
      return {
        ...charge,
        amount: charge.amount - parts.returned,
        spent: charge.spent + parts.spent - parts.credited,
      };
    });
    return { moves, charges };
  }

  setPolicy(policy: LedgerPolicy): void {
    this.policy = policy;
    this.generation += 1;
    const before = this.kinds;
    this.kinds = new Map();
    for (const spec of policy.limits) {
      const most = spec.kind === "gauge" ? spec.max : spec.capacity;
      const paced = most === "auto" && policy.limits.some((other) => this.#paces(other, spec));
      if (most === null || paced) continue;
      const old = before.get(spec.name);
      const same =
        old !== undefined &&
        JSON.stringify([old.spec.kind, old.spec.unit, old.spec.per]) ===
          JSON.stringify([spec.kind, spec.unit, spec.per]) &&
        (spec.kind !== "window" || (old.spec.kind === "window" && old.spec.every === spec.every));
      const generation = same ? old.generation : this.generation;
      const endsAtMs = same ? old.endsAtMs : spec.kind === "window" ? endOf(spec.every, this.nowMs) : 0;
      this.kinds.set(spec.name, { spec, generation, endsAtMs });
    }
    for (const [key, bound] of this.bounds) {
      const kind = this.kinds.get(key.split("|")[0] ?? "");
      const rests = key.includes("|") && bound.held === 0 && free(bound, this.nowMs) === capacity(bound);
      if (rests || kind?.generation !== bound.kind.generation) {
        this.bounds.delete(key);
        continue;
      }
      const level = levelAt(bound, this.nowMs);
      const full = kind.spec.kind === "bucket" ? (kind.spec.capacity ?? 0) * 60_000 : 0;
      this.bounds.set(key, { ...bound, kind, level: Math.min(level, full), atMs: this.nowMs });
    }
    for (const [name, kind] of this.kinds)
      if (keyOf(kind.spec, NOBODY) === name) this.bounds.set(name, this.bound(name, kind));
  }

  #paces(other: LedgerPolicy["limits"][number], gauge: LedgerPolicy["limits"][number]): boolean {
    const unit = gauge.unit === "concurrency" ? "requests" : "tokens";
    return (
      other.kind === "bucket" &&
      other.unit === unit &&
      other.capacity !== null &&
      [...other.per].toSorted().join() === [...gauge.per].toSorted().join()
    );
  }

  turnWindow(name: string): { readonly startsAtMs: number; readonly endsAtMs: number } {
    const kind = this.kinds.get(name);
    if (kind?.spec.kind !== "window") throw new Error(`${name} is not a window`);
    this.generation += 1;
    kind.generation = this.generation;
    kind.endsAtMs = endOf(kind.spec.every, this.nowMs);
    for (const [key, bound] of this.bounds)
      if (bound.kind === kind) this.bounds.set(key, { ...bound, held: 0, spent: 0 });
    return { startsAtMs: kind.endsAtMs - LENGTH[kind.spec.every], endsAtMs: kind.endsAtMs };
  }
}

const isClosed = ({ state }: ModelLease): boolean => state === "SETTLED" || state === "RELEASED";

const before = (one: ModelLease, other: ModelLease): boolean =>
  one.expiresAtMs - other.expiresAtMs < 0 ||
  (one.expiresAtMs === other.expiresAtMs && (one.touched ?? 0) < (other.touched ?? 0));

const NOBODY: Scope = { class: "", route: "", model: "", pool: "", key: "", user: "" };

/** The world keeps to UTC, and to the two that begin where a day or an hour does. */
const LENGTH = { hour: 3_600_000, day: 86_400_000, week: Number.NaN, month: Number.NaN };
const endOf = (every: keyof typeof LENGTH, atMs: number): number =>
  (Math.floor(atMs / LENGTH[every]) + 1) * LENGTH[every];

export const tokens = (size: Size): number => size.inputTokens + size.outputTokens;

export const subject = (command: Command): string | null =>
  command.type === "set_policy" || command.type === "turn_window" ? null : command.requestId;
