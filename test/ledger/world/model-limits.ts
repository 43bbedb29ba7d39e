/**
 * Limits as the design tells them, written once more and differently: what is held, spent and charged is kept as
 * it came, and what is free is worked out from it. Of the ledger only the shapes are used. The maximum of an
 * "auto" gauge is learnt from what it saw, so it is the ledger's own: here it is held to what Little's law allows.
 */
import type { Move, Span } from "../../../src/ledger/types.ts";
import type { Limit, Scope } from "../../../src/policy/limit-schema.ts";
import type { Price } from "../../../src/policy/resolve.ts";

export interface Size {
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly cachedInputTokens?: number;
}

/** A limit of the policy that bounds something, in one of its lives. */
export interface Kind {
  readonly spec: Limit;
  readonly generation: number;
  readonly span: Span | null;
}

/** One instance of it. Replaced and never edited, so that a crash can take the model back. */
export interface Bound {
  readonly key: string;
  readonly kind: Kind;
  readonly held: number;
  /** Of a bucket, at `atMs`: 60,000ths. */
  readonly level: number;
  readonly atMs: number;
  /** Of a window. */
  readonly spent: number;
  /** Of a rolling limit: what was charged in which second. */
  readonly charged: ReadonlyMap<number, number>;
  readonly settledTotal: number;
  readonly creditedTotal: number;
  /** Of an "auto" gauge: what the ledger learnt, and what there was to learn from. */
  readonly autoMax: number | null;
  readonly stays: Stays;
}

/** How long calls stayed: all of them in the mean, those of this half hour and the one before in the median. */
interface Stays {
  readonly count: number;
  readonly meanMs: number;
  readonly sinceMs: number;
  readonly newer: readonly number[];
  readonly older: readonly number[];
}

const NO_STAYS: Stays = { count: 0, meanMs: 0, sinceMs: 0, newer: [], older: [] };

const PARTS = 60_000;
/** A charge counts until all of its second is sixty seconds old. */
const ROLLING_SECONDS = 61;

export const nameOf = (key: string): string => key.split("|")[0] ?? "";

export const keyOf = ({ name, per }: Limit, scope: Scope): string =>
  [
    name,
    ...per.flatMap((dimension) =>
      dimension === "tenant" ? [] : [`${dimension}=${encodeURIComponent(scope[dimension])}`],
    ),
  ].join("|");

export function opened(key: string, kind: Kind, atMs: number): Bound {
  const level = kind.spec.kind === "bucket" ? (kind.spec.capacity ?? 0) * PARTS : 0;
  const nothing = { held: 0, spent: 0, settledTotal: 0, creditedTotal: 0, autoMax: null };
  return { key, kind, level, atMs, charged: new Map(), stays: NO_STAYS, ...nothing };
}

/** Null: open. */
export function capacity({ kind: { spec }, autoMax }: Bound): number | null {
  if (spec.kind !== "gauge") return spec.capacity;
  return spec.max === "auto" ? autoMax : spec.max;
}

/** Of a bucket, in its parts. */
export function levelAt({ kind: { spec }, level, atMs: from }: Bound, atMs: number): number {
  if (spec.kind !== "bucket") return 0;
  const full = (spec.capacity ?? 0) * PARTS;
  const raised = level + spec.refillPerMinute * (atMs - from);
  return raised > full ? full : raised;
}

/** What is free, in units. */
export function free(bound: Bound, atMs: number): number {
  const most = capacity(bound);
  if (most === null) return Infinity;
  switch (bound.kind.spec.kind) {
    case "bucket":
      return levelAt(bound, atMs) / PARTS;
    case "gauge":
      return most - bound.held;
    case "window":
      return most - bound.spent - bound.held;
    case "rolling":
      return most - charges(bound, atMs).reduce((sum, [, charged]) => sum + charged, 0);
  }
}

/** Those that count still, oldest first. */
function charges({ charged }: Bound, atMs: number): [number, number][] {
  const now = Math.floor(atMs / 1_000);
  return [...charged].filter(([second]) => now - second < ROLLING_SECONDS).toSorted(([a], [b]) => a - b);
}

/** What the batch class must leave, in a bucket's parts. */
export function floor({ kind: { spec } }: Bound, requestClass: string): number {
  if (spec.kind !== "bucket" || requestClass === "interactive") return 0;
  return Math.round((spec.capacity ?? 0) * PARTS * spec.batchFloor);
}

export function amount(spec: Limit, size: Size, price: Price | null): number {
  const cached = Math.min(size.cachedInputTokens ?? 0, size.inputTokens);
  const plain = size.inputTokens - cached;
  switch (spec.unit) {
    case "requests":
    case "concurrency":
      return 1;
    case "in_flight_tokens":
      return size.inputTokens + size.outputTokens;
    case "output_tokens":
      return size.outputTokens;
    case "input_tokens":
      return plain + Math.ceil(cached * spec.cachedInputWeight);
    case "tokens":
      return plain + Math.ceil(cached * spec.cachedInputWeight) + size.outputTokens;
    case "nano_usd": {
      if (price === null) return 0;
      const pico =
        BigInt(plain) * BigInt(price.inputPicoUsd) +
        BigInt(cached) * BigInt(price.cachedInputPicoUsd) +
        BigInt(size.outputTokens) * BigInt(price.outputPicoUsd);
      return Number((pico + 999n) / 1_000n);
    }
  }
}

/** What is missing for so much, in a bucket's parts or in units; above zero means no. */
export function lacking(bound: Bound, wanted: number, requestClass: string, atMs: number): number {
  const { spec } = bound.kind;
  const most = capacity(bound);
  if (most === null) return -Infinity;
  // Who takes nothing is in nobody's way, not even in debt.
  if (wanted === 0) return 0;
  switch (spec.kind) {
    case "bucket":
      return wanted * PARTS + floor(bound, requestClass) - levelAt(bound, atMs);
    // Whoever is larger than the whole goes alone.
    case "gauge":
      if (spec.unit === "in_flight_tokens" && bound.held === 0 && most > 0) return 0;
      return wanted - free(bound, atMs);
    case "window":
      if (spec.stop === "never") return 0;
      if (spec.stop === "spent") return bound.spent < most ? 0 : 1;
      return wanted - free(bound, atMs);
    case "rolling":
      return wanted - free(bound, atMs);
  }
}

/** The most that an empty one would ever give, in units, maybe fractional. */
export function mostEver(bound: Bound, requestClass: string): number {
  const { spec } = bound.kind;
  if (spec.kind === "gauge") return Infinity;
  const most = spec.capacity ?? 0;
  if (spec.kind === "window" && spec.stop !== "hold")
    return spec.stop === "spent" && most === 0 ? 0 : Infinity;
  return (most * PARTS - floor(bound, requestClass)) / PARTS;
}

/** The batch floor alone is in the way. */
export const belowFloor = (bound: Bound, wanted: number, requestClass: string, atMs: number): boolean =>
  requestClass === "batch" &&
  bound.kind.spec.kind === "bucket" &&
  bound.kind.spec.batchFloor > 0 &&
  levelAt(bound, atMs) >= wanted * PARTS;

/** When so much that is missing is free, if nothing else happens; null where only calls can free it; Infinity for never. */
export function freesInMs(bound: Bound, missing: number, atMs: number): number | null {
  const { spec, span } = bound.kind;
  switch (spec.kind) {
    case "bucket":
      return spec.refillPerMinute === 0 ? Infinity : Math.ceil(missing / spec.refillPerMinute);
    case "window":
      return (span?.endsAtMs ?? Infinity) - atMs;
    case "gauge":
      return null;
    case "rolling": {
      let gone = 0;
      for (const [second, charged] of charges(bound, atMs)) {
        gone += charged;
        if (gone >= missing) return (second + ROLLING_SECONDS) * 1_000 - atMs;
      }
      return Infinity;
    }
  }
}

export function take(bound: Bound, wanted: number, atMs: number): Bound {
  const { kind } = bound.kind.spec;
  return {
    ...bound,
    ...advanced(bound, atMs),
    held: bound.held + wanted,
    level: levelAt(bound, atMs) - (kind === "bucket" ? wanted * PARTS : 0),
    charged: kind === "rolling" ? plus(bound.charged, atMs, Math.floor(atMs / 1_000), wanted) : bound.charged,
  };
}

type Parts = Pick<Move, "returned" | "spent" | "credited">;

/** Ends a hold, charges or credits, and says what the limit told of it. */
export function give(
  bound: Bound,
  { returned, spent, credited }: Parts,
  chargedAtMs: number,
  atMs: number,
): { readonly bound: Bound; readonly move: Move } {
  const { spec } = bound.kind;
  const net = returned - spent + credited;
  let { level, charged } = { ...bound, ...advanced(bound, atMs) };
  let forfeitedLevel = 0;
  let alert: number | null = null;
  if (spec.kind === "bucket") {
    const full = (spec.capacity ?? 0) * PARTS;
    level += net * PARTS;
    forfeitedLevel = Math.max(0, level - full);
    level -= forfeitedLevel;
  } else if (spec.kind === "rolling") {
    const now = Math.floor(atMs / 1_000);
    const then = Math.floor(chargedAtMs / 1_000);
    if (net < 0) charged = plus(charged, atMs, now, -net);
    else if (net > 0) {
      // It comes back where it was charged, or nowhere once that second no longer counts.
      const there = now - then < ROLLING_SECONDS ? (charged.get(then) ?? 0) : 0;
      forfeitedLevel = Math.max(0, net - there);
      if (net > forfeitedLevel) charged = plus(charged, atMs, then, forfeitedLevel - net);
    }
  } else if (spec.kind === "window") {
    const passed = spec.alerts.filter((share) => {
      const mark = share * (spec.capacity ?? 1);
      return bound.spent < mark && mark <= bound.spent + spent;
    });
    if (passed.length > 0) alert = Math.max(...passed);
  }
  return {
    bound: {
      ...bound,
      ...advanced(bound, atMs),
      level,
      charged,
      held: bound.held - returned,
      spent: spec.kind === "window" ? bound.spent + spent - credited : 0,
      settledTotal: bound.settledTotal + spent,
      creditedTotal: bound.creditedTotal + credited,
    },
    move: { limit: bound.key, returned, spent, credited, forfeitedLevel, alert },
  };
}

/** A call has left it. */
export function sawStay(bound: Bound, stayMs: number, atMs: number): Bound {
  const { count, meanMs, sinceMs, newer, older } = bound.stays;
  const weight = Math.max(0.02, 1 / (count + 1));
  const ageMs = atMs - sinceMs;
  const next = { count: count + 1, meanMs: meanMs + (stayMs - meanMs) * weight };
  const halves =
    ageMs < HALF_HOUR_MS
      ? { sinceMs, newer: [...newer, stayMs], older }
      : { sinceMs: atMs, newer: [stayMs], older: ageMs < 2 * HALF_HOUR_MS ? newer : [] };
  return { ...bound, stays: { ...next, ...halves } };
}

/** Another life by the same name: what a change of policy keeps. */
export function carried(bound: Bound, kind: Kind, atMs: number): Bound {
  const full = kind.spec.kind === "bucket" ? (kind.spec.capacity ?? 0) * PARTS : 0;
  const isAuto = kind.spec.kind === "gauge" && kind.spec.max === "auto";
  const stays = isAuto ? bound.stays : NO_STAYS;
  return { ...bound, kind, level: Math.min(levelAt(bound, atMs), full), atMs, autoMax: null, stays };
}

/** As good as just opened, so that nothing is lost by forgetting it; those without a scope are kept for their totals. */
export const isAtRest = (bound: Bound, atMs: number): boolean =>
  bound.key !== bound.kind.spec.name &&
  bound.held === 0 &&
  !(bound.kind.spec.kind === "gauge" && bound.kind.spec.max === "auto") &&
  free(bound, atMs) === (capacity(bound) ?? Infinity);

const AUTO_SAMPLES_MIN = 50;
const HALF_HOUR_MS = 1_800_000;

/**
 * What is wrong with what an "auto" gauge has learnt, if anything is: Little's law for the mean stay, but never for
 * more than twice the median, and that is told by bins that are a tenth wide. It looks again at every eighth call.
 */
export function wrongAuto({ kind: { spec }, stays, autoMax }: Bound, learnt: number | null): string | null {
  const { count, meanMs, newer, older } = stays;
  if (spec.kind !== "gauge" || spec.max !== "auto") return learnt === null ? null : "it learns nothing";
  if (learnt === null) return count < AUTO_SAMPLES_MIN ? null : `open after ${count} calls`;
  if (count < AUTO_SAMPLES_MIN) return `${learnt} after ${count} calls`;
  if (learnt === autoMax && count % 8 !== 0) return null;
  const sorted = [...newer, ...older].toSorted((a, b) => a - b);
  const medianMs = sorted[Math.ceil(sorted.length / 2) - 1] ?? Infinity;
  const callsIn = (ms: number) =>
    Math.max(1, Math.floor(((spec.allowancePerMinute ?? 0) / 60_000) * spec.headroom * ms));
  const [least, most] = [0.9, 1.1].map((share) =>
    callsIn(Math.min(meanMs, 2 * share * (medianMs + share - 1))),
  );
  const isBetween = learnt >= (least ?? 0) && learnt <= (most ?? 0);
  return isBetween ? null : `${learnt} is not between ${least} and ${most}`;
}

const advanced = (bound: Bound, atMs: number) => ({
  level: levelAt(bound, atMs),
  atMs: Math.max(bound.atMs, atMs),
});

function plus(charged: ReadonlyMap<number, number>, atMs: number, second: number, by: number) {
  const next = new Map<number, number>();
  // Kept short; an hour is far more than ever counts.
  for (const [then, amountThen] of charged)
    if (then > atMs / 1_000 - 3_600 && amountThen !== 0) next.set(then, amountThen);
  next.set(second, (next.get(second) ?? 0) + by);
  return next;
}
