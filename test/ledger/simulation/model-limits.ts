/**
 * Limits as the design tells them, written once more and differently: what is held and what was spent are kept
 * as they were charged, and a level is worked out from them. Nothing of the ledger is used but the shape of a
 * policy. The maximum of an "auto" gauge is learnt, so it is taken from the ledger; a test of its own checks it.
 */
import type { Limit, Scope } from "../../../src/policy/limit-schema.ts";
import type { Price } from "../../../src/policy/resolve.ts";

export interface Size {
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly cachedInputTokens?: number;
}

export interface Kind {
  readonly spec: Limit;
  generation: number;
  endsAtMs: number;
}

export interface Bound {
  readonly key: string;
  kind: Kind;
  held: number;
  /** Of a bucket: 60,000ths. */
  level: number;
  atMs: number;
  /** Of a window. */
  spent: number;
  /** Of a rolling limit: what was charged in which second. */
  charged: ReadonlyMap<number, number>;
  /** Learnt by the ledger. */
  autoMax: number | null;
}

export const keyOf = (spec: Limit, scope: Scope): string =>
  [
    spec.name,
    ...spec.per.flatMap((dimension) =>
      dimension === "tenant" ? [] : [`${dimension}=${encodeURIComponent(scope[dimension])}`],
    ),
  ].join("|");

export function opened(key: string, kind: Kind, atMs: number): Bound {
  const level = kind.spec.kind === "bucket" ? (kind.spec.capacity ?? 0) * 60_000 : 0;
  return { key, kind, held: 0, level, atMs, spent: 0, charged: new Map(), autoMax: null };
}

/** Null: open. */
export function capacity({ kind: { spec }, autoMax }: Bound): number | null {
  if (spec.kind !== "gauge") return spec.capacity;
  return spec.max === "auto" ? autoMax : spec.max;
}

/** In units, exact: a bucket's parts divide. */
export function free(bound: Bound, atMs: number): number {
  const { spec } = bound.kind;
  const most = capacity(bound);
  if (most === null) return Infinity;
  if (spec.kind === "bucket") return levelAt(bound, atMs) / 60_000;
  if (spec.kind === "gauge") return most - bound.held;
  if (spec.kind === "window") return most - bound.spent - bound.held;
  let sum = 0;
  const oldest = Math.floor(atMs / 1_000) - 60;
  for (const [second, charged] of bound.charged) if (second >= oldest) sum += charged;
  return most - sum;
}

export function levelAt({ kind: { spec }, level, atMs: from }: Bound, atMs: number): number {
  if (spec.kind !== "bucket") return 0;
  const full = (spec.capacity ?? 0) * 60_000;
  const raised = level + spec.refillPerMinute * (atMs - from);
  return raised > full ? full : raised;
}

export function floor({ kind: { spec } }: Bound, requestClass: string): number {
  if (spec.kind !== "bucket" || requestClass === "interactive") return 0;
  return Math.round((spec.capacity ?? 0) * 60_000 * spec.batchFloor);
}

export function amount(spec: Limit, size: Size, price: Price | null): number {
  const cached = Math.min(size.cachedInputTokens ?? 0, size.inputTokens);
  const plain = size.inputTokens - cached;
  if (spec.unit === "requests" || spec.unit === "concurrency") return 1;
  if (spec.unit === "in_flight_tokens") return size.inputTokens + size.outputTokens;
  if (spec.unit === "output_tokens") return size.outputTokens;
  if (spec.unit === "nano_usd") {
    if (price === null) return 0;
    const pico =
      BigInt(plain) * BigInt(price.inputPicoUsd) +
      BigInt(cached) * BigInt(price.cachedInputPicoUsd) +
      BigInt(size.outputTokens) * BigInt(price.outputPicoUsd);
    return Number((pico + 999n) / 1_000n);
  }
  const weight = spec.kind === "gauge" ? 1 : spec.cachedInputWeight;
  const input = plain + Math.ceil(cached * weight);
  return spec.unit === "input_tokens" ? input : input + size.outputTokens;
}

/** Whether this much may be taken now. */
export function allows(bound: Bound, wanted: number, requestClass: string, atMs: number): boolean {
  const { spec } = bound.kind;
  const most = capacity(bound);
  if (most === null || wanted === 0) return true;
  switch (spec.kind) {
    case "bucket":
      return levelAt(bound, atMs) - wanted * 60_000 >= floor(bound, requestClass);
    case "gauge":
      if (spec.unit === "in_flight_tokens" && bound.held === 0 && most !== 0) return true;
      return bound.held + wanted <= most;
    case "window":
      if (spec.stop === "never") return true;
      if (spec.stop === "spent") return bound.spent < most;
      return bound.spent + bound.held + wanted <= most;
    case "rolling":
      return free(bound, atMs) >= wanted;
  }
}

/** Whether an empty ledger could ever allow it. */
export function couldAllow(bound: Bound, wanted: number, requestClass: string): boolean {
  const { spec } = bound.kind;
  if (spec.kind === "gauge") return true;
  const most = spec.capacity ?? 0;
  if (spec.kind === "bucket") return wanted * 60_000 <= most * 60_000 - floor(bound, requestClass);
  if (spec.kind === "window" && spec.stop === "never") return true;
  if (spec.kind === "window" && spec.stop === "spent") return most > 0 || wanted === 0;
  return wanted <= most;
}

/** Short of the batch floor alone. */
export const belowFloor = (bound: Bound, wanted: number, requestClass: string, atMs: number): boolean =>
  requestClass === "batch" &&
  bound.kind.spec.kind === "bucket" &&
  bound.kind.spec.batchFloor > 0 &&
  levelAt(bound, atMs) >= wanted * 60_000;

export function take(bound: Bound, wanted: number, atMs: number): Bound {
  const next = advanced(bound, atMs);
  next.held += wanted;
  if (next.kind.spec.kind === "bucket") next.level -= wanted * 60_000;
  if (next.kind.spec.kind === "rolling") next.charged = plus(next.charged, Math.floor(atMs / 1_000), wanted);
  return next;
}

/** What comes back, what is spent in its place, and how much of it is lost. */
export function give(
  bound: Bound,
  { returned, spent, credited }: { returned: number; spent: number; credited: number },
  chargedAtMs: number,
  atMs: number,
): { readonly bound: Bound; readonly forfeitedLevel: number } {
  const next = advanced(bound, atMs);
  const net = returned - spent + credited;
  next.held -= returned;
  let forfeitedLevel = 0;
  switch (next.kind.spec.kind) {
    case "bucket": {
      const full = (next.kind.spec.capacity ?? 0) * 60_000;
      next.level += net * 60_000;
      if (next.level > full) {
        forfeitedLevel = next.level - full;
        next.level = full;
      }
      break;
    }
    case "window":
      next.spent += spent - credited;
      break;
    case "rolling": {
      const now = Math.floor(atMs / 1_000);
      const then = Math.floor(chargedAtMs / 1_000);
      if (net < 0) next.charged = plus(next.charged, now, -net);
      else {
        const there = then >= now - 60 ? (next.charged.get(then) ?? 0) : 0;
        const back = Math.min(net, there);
        forfeitedLevel = net - back;
        if (back > 0) next.charged = plus(next.charged, then, -back);
      }
      break;
    }
    case "gauge":
      break;
  }
  return { bound: next, forfeitedLevel };
}

function advanced(bound: Bound, atMs: number): Bound {
  return { ...bound, level: levelAt(bound, atMs), atMs: Math.max(bound.atMs, atMs) };
}

function plus(charged: ReadonlyMap<number, number>, second: number, by: number): ReadonlyMap<number, number> {
  const next = new Map<number, number>();
  for (const [each, amountThen] of charged) if (each >= second - 61) next.set(each, amountThen);
  next.set(second, (next.get(second) ?? 0) + by);
  return next;
}

/** When this much is free again if nothing else happens; null where only calls can free it, or nothing will. */
export function freesInMs(bound: Bound, wanted: number, requestClass: string, atMs: number): number | null {
  const { spec, endsAtMs } = bound.kind;
  switch (spec.kind) {
    case "bucket": {
      const short = wanted * 60_000 + floor(bound, requestClass) - levelAt(bound, atMs);
      return spec.refillPerMinute === 0 ? null : Math.ceil(short / spec.refillPerMinute);
    }
    case "window":
      return endsAtMs - atMs;
    case "rolling": {
      // Second by second: simple, and sure.
      for (let second = Math.floor(atMs / 1_000) + 1; ; second += 1)
        if (free(bound, second * 1_000) >= wanted) return second * 1_000 - atMs;
    }
    case "gauge":
      return null;
  }
}
