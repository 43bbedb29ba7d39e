/**
 * The independent model's memory: leases, limits and keys as plain records that are replaced and never edited.
 * Every change leaves word how to undo it, so that a crash can take the model back to what was durable.
 */
import type { Command, Idempotency, Reserve } from "../../../src/ledger/commands.ts";
import type { LeaseState, Move, Settled, Span, Usage } from "../../../src/ledger/types.ts";
import type { Limit, Scope } from "../../../src/policy/limit-schema.ts";
import type { LedgerPolicy, Price } from "../../../src/policy/resolve.ts";
import {
  amount,
  type Bound,
  carried,
  give,
  isAtRest,
  type Kind,
  keyOf,
  nameOf,
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
  /** 0: it was released before it was reserved. */
  readonly fence: number;
  readonly state: Exclude<LeaseState, "PROPOSED">;
  /** The gateway's own, and not for a caller to act upon. */
  readonly proxied: boolean;
  readonly scope: Scope;
  readonly class: "interactive" | "batch";
  readonly price: Price | null;
  readonly ceiling: number | null;
  readonly idempotency: Idempotency | null;
  readonly countedTokens: number | null;
  readonly reservedAtMs: number;
  readonly ttlMs: number;
  readonly hold: Size;
  readonly captured: Size;
  readonly charges: readonly ModelCharge[];
  readonly expiresAtMs: number;
  readonly lastUsageEventId: string | null;
  readonly providerRequestId: string | null;
  readonly settled: {
    readonly usage: Usage;
    readonly basis: Settled["basis"];
    readonly corrected: boolean;
  } | null;
  /** Which change of state brought it where it is: the order among those that are closed. */
  readonly place: number;
}

export interface ModelDrift {
  readonly samples: number;
  readonly counted: number;
  readonly billed: number;
}

export interface ModelWaiter {
  readonly command: Reserve;
  readonly drift: number;
  readonly hold: Size;
  readonly arrivedAtMs: number;
  readonly deadlineAtMs: number;
}

export interface Demand {
  readonly bound: Bound;
  readonly wanted: number;
}

/** What changes as a whole. */
interface Facts {
  readonly policy: LedgerPolicy | null;
  readonly generation: number;
  readonly kinds: ReadonlyMap<string, Kind>;
  /** Over the settlements, each new one a tenth. */
  readonly means: { readonly stayMs: number; readonly outputTokens: number; readonly refundShare: number };
  readonly places: number;
}

/** Closed leases are remembered this long. */
export const KEPT_MS = 900_000;
const NOTHING = { inputTokens: 0, outputTokens: 0 };
const NOBODY: Scope = { class: "", route: "", model: "", pool: "", key: "", user: "" };

export const tokens = (size: Size): number => size.inputTokens + size.outputTokens;
export const isClosed = ({ state }: ModelLease): boolean => state === "SETTLED" || state === "RELEASED";
export const isOpen = (lease: ModelLease): boolean => !isClosed(lease) && lease.state !== "RECONCILING";

export class Model {
  nowMs = 0;
  /** In the order of arrival. In memory only, and nobody's after a crash. */
  waiters: readonly ModelWaiter[] = [];
  readonly leases = new Map<string, ModelLease>();
  readonly bounds = new Map<string, Bound>();
  readonly keys = new Map<string, string>();
  readonly drifts = new Map<string, ModelDrift>();
  #facts: Facts = {
    policy: null,
    generation: 0,
    kinds: new Map(),
    means: { stayMs: 0, outputTokens: 0, refundShare: 0 },
    places: 0,
  };
  #undo: (() => void)[] = [];
  #forgotten = 0;

  get policy(): LedgerPolicy | null {
    return this.#facts.policy;
  }
  get kinds(): ReadonlyMap<string, Kind> {
    return this.#facts.kinds;
  }
  get means(): Facts["means"] {
    return this.#facts.means;
  }

  /** Where it is in its own history. */
  mark(): number {
    return this.#forgotten + this.#undo.length;
  }

  /** Nothing before this will be undone. */
  forgetBefore(mark: number): void {
    this.#undo.splice(0, mark - this.#forgotten);
    this.#forgotten = mark;
  }

  backTo(mark: number): void {
    while (this.mark() > mark) this.#undo.pop()?.();
  }

  #change(change: Partial<Facts>): void {
    const before = this.#facts;
    this.#undo.push(() => {
      this.#facts = before;
    });
    this.#facts = { ...before, ...change };
  }

  #set<T>(map: Map<string, T>, key: string, value: T | undefined): void {
    const before = map.get(key);
    this.#undo.push(() => (before === undefined ? map.delete(key) : map.set(key, before)));
    if (value === undefined) map.delete(key);
    else map.set(key, value);
  }

  learn(change: Partial<Facts["means"]>): void {
    this.#change({ means: { ...this.means, ...change } });
  }

  /** One prompt was billed. */
  learnBill({ scope, countedTokens }: ModelLease, billedTokens: number): void {
    if (countedTokens === null || countedTokens === 0 || billedTokens === 0) return;
    const { samples, counted, billed } = this.drifts.get(scope.model) ?? {
      samples: 0,
      counted: 0,
      billed: 0,
    };
    const weight = Math.min(8_192, countedTokens);
    this.#set(this.drifts, scope.model, {
      samples: samples + 1,
      counted: counted * (63 / 64) + weight,
      billed: billed * (63 / 64) + billedTokens * (weight / countedTokens),
    });
  }

  putBound(bound: Bound): void {
    this.#set(this.bounds, bound.key, bound);
  }

  /** The lease as it was, but for this; a new time to go by, or a new line to stand in, puts it behind the others. */
  put(lease: ModelLease, change: Partial<ModelLease>): void {
    const next = { ...lease, ...change };
    const isMoved =
      next.expiresAtMs !== lease.expiresAtMs ||
      isOpen(next) !== isOpen(lease) ||
      isClosed(next) !== isClosed(lease);
    if (isMoved) this.#change({ places: this.#facts.places + 1 });
    this.#set(this.leases, lease.id, isMoved ? { ...next, place: this.#facts.places } : next);
  }

  enter(
    lease: Omit<ModelLease, "captured" | "lastUsageEventId" | "providerRequestId" | "settled" | "place">,
  ): void {
    this.removeWaiter(lease.id);
    this.#change({ places: this.#facts.places + 1 });
    const fresh = { captured: NOTHING, lastUsageEventId: null, providerRequestId: null, settled: null };
    this.#set(this.leases, lease.id, { ...lease, ...fresh, place: this.#facts.places });
    if (lease.idempotency !== null) this.#set(this.keys, lease.idempotency.key, lease.id);
    this.#forget();
  }

  /** A release came before its reserve: the id is closed. */
  forestall(id: string): void {
    const closed = {
      fence: 0,
      state: "RELEASED",
      proxied: true,
      scope: NOBODY,
      class: "interactive",
      hold: NOTHING,
    } as const;
    const never = { price: null, ceiling: null, idempotency: null, ttlMs: 0, charges: [] } as const;
    const countedTokens = null;
    this.enter({
      id,
      ...closed,
      ...never,
      countedTokens,
      reservedAtMs: this.nowMs,
      expiresAtMs: this.nowMs + KEPT_MS,
    });
  }

  removeWaiter(id: string): void {
    this.waiters = this.waiters.filter(({ command }) => command.requestId !== id);
  }

  /** With each lease that enters, the two that were closed longest ago go, if their time is up. */
  #forget(): void {
    for (let gone = 0; gone < 2; gone += 1) {
      let oldest: ModelLease | null = null;
      for (const lease of this.leases.values())
        if (
          isClosed(lease) &&
          lease.expiresAtMs <= this.nowMs &&
          (oldest === null || lease.place < oldest.place)
        )
          oldest = lease;
      if (oldest === null) return;
      this.#set(this.leases, oldest.id, undefined);
      const key = oldest.idempotency?.key;
      if (key !== undefined && this.keys.get(key) === oldest.id) this.#set(this.keys, key, undefined);
    }
  }

  /** One that nobody has touched is as good as just opened. */
  bound(key: string, kind: Kind): Bound {
    return this.bounds.get(key) ?? opened(key, kind, this.nowMs);
  }

  /** What is asked of each limit that applies, in the policy's order. */
  demands(scope: Scope, price: Price | null, size: Size): Demand[] {
    return [...this.kinds.values()].map((kind) => ({
      bound: this.bound(keyOf(kind.spec, scope), kind),
      wanted: amount(kind.spec, size, price),
    }));
  }

  /** The limit that counts this charge still: the same one, in the same life. */
  kindOf({ limit, generation }: { readonly limit: string; readonly generation: number }): Kind | null {
    const kind = this.kinds.get(nameOf(limit));
    return kind?.generation === generation ? kind : null;
  }

  take(limit: string, generation: number, wanted: number): void {
    const kind = this.kindOf({ limit, generation });
    if (kind !== null) this.putBound(take(this.bound(limit, kind), wanted, this.nowMs));
  }

  /** Ends holds and charges for them; tells how each limit moved, and what the lease is charged then. */
  moves(
    lease: ModelLease,
    of: (charge: ModelCharge, spec: Limit) => Partial<Pick<Move, "returned" | "spent" | "credited">>,
  ): { readonly moves: readonly Move[]; readonly charges: readonly ModelCharge[] } {
    const moves: Move[] = [];
    const charges = lease.charges.map((charge) => {
      const kind = this.kindOf(charge);
      if (kind === null) return charge;
      const { returned = 0, spent = 0, credited = 0 } = of(charge, kind.spec);
      if (returned === 0 && spent === 0 && credited === 0) return charge;
      const parts = { returned, spent, credited };
      const { bound, move } = give(this.bound(charge.limit, kind), parts, lease.reservedAtMs, this.nowMs);
      this.putBound(bound);
      moves.push(move);
      return { ...charge, amount: charge.amount - returned, spent: charge.spent + spent - credited };
    });
    return { moves, charges };
  }

  setPolicy(policy: LedgerPolicy): Record<string, Span> {
    const generation = this.#facts.generation + 1;
    const before = this.kinds;
    const kinds = new Map<string, Kind>();
    const windows: Record<string, Span> = {};
    for (const spec of policy.limits) {
      const span = spec.kind === "window" ? spanAt(spec, this.nowMs) : null;
      if (span !== null) windows[spec.name] = span;
      const most = spec.kind === "gauge" ? spec.max : spec.capacity;
      if (most === null || (most === "auto" && policy.limits.some((other) => paces(other, spec)))) continue;
      const old = before.get(spec.name);
      const kept = old !== undefined && identityOf(old.spec) === identityOf(spec);
      kinds.set(spec.name, kept ? { ...old, spec } : { spec, generation, span });
    }
    this.#change({ policy, generation, kinds });
    for (const bound of this.bounds.values()) {
      const kind = kinds.get(nameOf(bound.key));
      const isKept = kind?.generation === bound.kind.generation && !isAtRest(bound, this.nowMs);
      if (isKept) this.putBound(carried(bound, kind, this.nowMs));
      else this.#set(this.bounds, bound.key, undefined);
    }
    // Those without a scope are there from the start.
    for (const [name, kind] of kinds)
      if (keyOf(kind.spec, NOBODY) === name && !this.bounds.has(name))
        this.putBound(opened(name, kind, this.nowMs));
    return windows;
  }

  /** When an alarm is next wanted: for whoever is held, or frozen. */
  nextDueAtMs(): number | null {
    const due = [...this.leases.values()].filter((lease) => !isClosed(lease));
    return due.length === 0 ? null : Math.min(...due.map(({ expiresAtMs }) => expiresAtMs));
  }

  turnWindow(name: string): Span {
    const kind = this.kinds.get(name);
    if (kind?.spec.kind !== "window") throw new Error(`${name} is not a window`);
    const generation = this.#facts.generation + 1;
    const span = spanAt(kind.spec, this.nowMs);
    const next = { ...kind, generation, span };
    this.#change({ generation, kinds: new Map([...this.kinds, [name, next]]) });
    for (const bound of this.bounds.values())
      if (nameOf(bound.key) === name) this.putBound({ ...bound, kind: next, held: 0, spent: 0 });
    return span;
  }
}

/** Of one name and with all this in common, two limits are one, whatever their numbers. */
const identityOf = (spec: Limit): string =>
  [
    spec.kind,
    spec.unit,
    spec.per.join(),
    ...(spec.kind === "window" ? [spec.every, spec.timeZone] : []),
  ].join(" ");

/** A bucket of the same scope says at once what Little's law would say late. */
const paces = (other: Limit, gauge: Limit): boolean =>
  other.kind === "bucket" &&
  other.unit === (gauge.unit === "concurrency" ? "requests" : "tokens") &&
  other.capacity !== null &&
  [...other.per].toSorted().join() === [...gauge.per].toSorted().join();

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** The world lives where clocks are never changed; those that are have a test of their own. */
const OFFSET_MS: Readonly<Record<string, number>> = { UTC: 0, "Asia/Kolkata": 5.5 * HOUR_MS };

export function spanAt({ every, timeZone }: Extract<Limit, { kind: "window" }>, atMs: number): Span {
  const offsetMs = OFFSET_MS[timeZone];
  if (offsetMs === undefined) throw new Error(`the model does not know ${timeZone}`);
  const local = new Date(atMs + offsetMs);
  const [year, month] = [local.getUTCFullYear(), local.getUTCMonth()];
  const midnight = Date.UTC(year, month, local.getUTCDate());
  const spanFrom = (from: number, to: number) => ({ startsAtMs: from - offsetMs, endsAtMs: to - offsetMs });
  switch (every) {
    case "hour": {
      const from = midnight + local.getUTCHours() * HOUR_MS;
      return spanFrom(from, from + HOUR_MS);
    }
    case "day":
      return spanFrom(midnight, midnight + DAY_MS);
    case "week": {
      const monday = midnight - ((local.getUTCDay() + 6) % 7) * DAY_MS;
      return spanFrom(monday, monday + 7 * DAY_MS);
    }
    case "month":
      return spanFrom(Date.UTC(year, month, 1), Date.UTC(year, month + 1, 1));
  }
}

export const subjectOf = (command: Command): string | null =>
  command.type === "set_policy" || command.type === "turn_window" ? null : command.requestId;
