/**
 * A limit's one number is its level: what is still free, whatever the kind. A bucket's refills and may be in
 * debt; a gauge's is its maximum less what is held; a window's its amount less what was spent and is held;
 * a rolling one's its amount less what was charged in the last sixty seconds.
 */
import { type Limit, limitNameOf } from "../policy/limit-schema.ts";
import type { LedgerPolicy } from "../policy/resolve.ts";
import type { RequestClass } from "../policy/schema.ts";
import { LEVEL_PER_UNIT, ROLLING_SECONDS } from "./bounds.ts";
import { spanOf } from "./calendar.ts";
import { believedStayMs, littlesLaw, noStay, observeStay, type Stay } from "./stay.ts";
import type { Move, Span } from "./types.ts";

/** A limit of the policy, for all its instances. */
export interface Definition {
  spec: Limit;
  /** Counts the policies and windows until it began: a charge of an earlier life moves nothing in this one. */
  generation: number;
  /** The part of the calendar that a window counts; null for the other kinds. */
  span: Span | null;
}

/** One instance of a limit: that of a tenant, or of one model or key or user of the tenant. */
export interface LimitState {
  readonly key: string;
  definition: Definition;
  /** Holds not yet settled, in units. */
  held: number;
  /** Actual charges, in units; only ever rises. What corrections gave back is beside it. */
  settledTotal: number;
  creditedTotal: number;
  /** Refunds that found the limit full; only ever rises. */
  forfeitedLevel: number;
  /** A bucket's, as of `asOfMs`, in `LEVEL_PER_UNIT`ths. */
  level: number;
  asOfMs: number;
  /** A window's, in units. */
  spent: number;
  /** A rolling limit's charges by second, oldest first. */
  slots: { readonly second: number; amount: number }[];
  /** What an "auto" gauge has seen, and the maximum that it derived; null while it is open. */
  stay: Stay | null;
  autoMax: number | null;
}

/** All limits that bound something: an unlimited one (`null`) is never asked. */
export function definitionsOf(
  { limits }: LedgerPolicy,
  windows: Readonly<Record<string, Span>>,
  generation: number,
): Map<string, Definition> {
  const definitions = new Map<string, Definition>();
  for (const spec of limits) {
    const bound = spec.kind === "gauge" ? spec.max : spec.capacity;
    if (bound === null || (bound === "auto" && isPaced(spec, limits))) continue;
    definitions.set(spec.name, { spec, generation, span: windows[spec.name] ?? null });
  }
  return definitions;
}

/** Little's law would only repeat, with a delay, what a bucket of the same scope says at once. */
function isPaced(gauge: Limit, limits: readonly Limit[]): boolean {
  const unit = gauge.unit === "concurrency" ? "requests" : "tokens";
  const scope = gauge.per.toSorted().join();
  return limits.some(
    (limit) =>
      limit.kind === "bucket" &&
      limit.unit === unit &&
      limit.capacity !== null &&
      limit.per.toSorted().join() === scope,
  );
}

export function windowsAt(limits: readonly Limit[], atMs: number): Record<string, Span> {
  const windows: Record<string, Span> = {};
  for (const spec of limits) if (spec.kind === "window") windows[spec.name] = spanOf(spec, atMs);
  return windows;
}

/** Starts full. */
export function openLimit(key: string, definition: Definition, atMs: number): LimitState {
  const { spec } = definition;
  return {
    key,
    definition,
    held: 0,
    settledTotal: 0,
    creditedTotal: 0,
    forfeitedLevel: 0,
    level: spec.kind === "bucket" ? (spec.capacity ?? 0) * LEVEL_PER_UNIT : 0,
    asOfMs: atMs,
    spent: 0,
    slots: [],
    stay: spec.kind === "gauge" && spec.max === "auto" ? noStay() : null,
    autoMax: null,
  };
}

/** A policy change keeps debt, holds and the refill clock: only what exceeds the new capacity is lost. */
export function carryOver(limit: LimitState, next: Definition, atMs: number): void {
  limit.level = levelOf(limit, atMs);
  limit.asOfMs = atMs;
  limit.definition = next;
  const { spec } = next;
  if (spec.kind === "bucket") limit.level = Math.min(limit.level, (spec.capacity ?? 0) * LEVEL_PER_UNIT);
  else limit.level = 0;
  const auto = spec.kind === "gauge" && spec.max === "auto";
  limit.stay = auto ? (limit.stay ?? noStay()) : null;
  limit.autoMax = null;
  derive(limit);
}

/** Of one name, kind, unit and scope, a limit is the same whatever its numbers. */
export function sameLimit(one: Limit, other: Limit): boolean {
  const window = (limit: Limit) => (limit.kind === "window" ? `${limit.every} ${limit.timeZone}` : "");
  return (
    one.kind === other.kind &&
    one.unit === other.unit &&
    one.per.join() === other.per.join() &&
    window(one) === window(other)
  );
}

/** In units; null while a gauge that derives itself knows nothing yet. */
export function capacityOf({ definition: { spec }, autoMax }: LimitState): number | null {
  if (spec.kind !== "gauge") return spec.capacity;
  return spec.max === "auto" ? autoMax : spec.max;
}

/** The parts of a unit that this limit's level is counted in. */
export function scaleOf({ definition }: LimitState): number {
  return definition.spec.kind === "bucket" ? LEVEL_PER_UNIT : 1;
}

/** In `scaleOf` parts. */
export function levelOf(limit: LimitState, atMs: number): number {
  const { spec } = limit.definition;
  const capacity = capacityOf(limit) ?? Number.MAX_SAFE_INTEGER;
  switch (spec.kind) {
    case "bucket": {
      const refilled = limit.level + spec.refillPerMinute * (atMs - limit.asOfMs);
      return Math.min(refilled, capacity * LEVEL_PER_UNIT);
    }
    case "gauge":
      return capacity - limit.held;
    case "window":
      return capacity - limit.spent - limit.held;
    case "rolling": {
      let charged = 0;
      for (const { second, amount } of limit.slots) if (counts(second, atMs)) charged += amount;
      return capacity - charged;
    }
  }
}

/** In units, maybe fractional. */
export function unitsOf(limit: LimitState, atMs: number): number {
  return levelOf(limit, atMs) / scaleOf(limit);
}

const counts = (second: number, atMs: number): boolean => second > Math.floor(atMs / 1_000) - ROLLING_SECONDS;

/** How much is missing for this amount, in `scaleOf` parts; at most 0 when it fits. */
export function missing(limit: LimitState, amount: number, requestClass: RequestClass, atMs: number): number {
  const { spec } = limit.definition;
  // Who takes nothing is not in the way of a debt.
  if (amount === 0) return 0;
  if (spec.kind === "window") {
    if (spec.stop === "never") return 0;
    if (spec.stop === "spent") return limit.spent < (spec.capacity ?? 0) ? 0 : 1;
  }
  // A call larger than the whole gauge goes alone: waiting for room that can never be would be a deadlock.
  if (spec.unit === "in_flight_tokens" && limit.held === 0 && capacityOf(limit) !== 0) return 0;
  return amount * scaleOf(limit) - (levelOf(limit, atMs) - floorOf(limit, requestClass));
}

/** The lowest level that this class may leave behind. */
export function floorOf({ definition: { spec } }: LimitState, requestClass: RequestClass): number {
  if (spec.kind !== "bucket" || requestClass !== "batch") return 0;
  return Math.round((spec.capacity ?? 0) * LEVEL_PER_UNIT * spec.batchFloor);
}

/** The most that one call of this class may ever take, in units; Infinity where a large one may pass. */
export function mostOf(limit: LimitState, requestClass: RequestClass): number {
  const { spec } = limit.definition;
  if (spec.kind === "gauge") return Infinity;
  if (spec.kind === "window" && spec.stop !== "hold")
    return spec.stop === "spent" && spec.capacity === 0 ? 0 : Infinity;
  return ((spec.capacity ?? 0) * scaleOf(limit) - floorOf(limit, requestClass)) / scaleOf(limit);
}

/**
 * Until so much is free that is missing now, if nothing else is admitted: exact for a bucket, a window and a
 * rolling limit. Null for a gauge, which only its calls can free; Infinity when waiting does not help.
 */
export function freesInMs(limit: LimitState, missingLevel: number, atMs: number): number | null {
  const { spec, span } = limit.definition;
  switch (spec.kind) {
    case "bucket":
      return spec.refillPerMinute === 0 ? Infinity : Math.ceil(missingLevel / spec.refillPerMinute);
    case "gauge":
      return null;
    case "window":
      return span === null ? Infinity : span.endsAtMs - atMs;
    case "rolling": {
      let left = missingLevel;
      for (const { second, amount } of limit.slots) {
        if (!counts(second, atMs)) continue;
        left -= amount;
        if (left <= 0) return (second + ROLLING_SECONDS) * 1_000 - atMs;
      }
      return Infinity;
    }
  }
}

export function hold(limit: LimitState, amount: number, atMs: number): void {
  advance(limit, atMs);
  if (limit.definition.spec.kind === "bucket") limit.level -= amount * LEVEL_PER_UNIT;
  if (limit.definition.spec.kind === "rolling") slotOf(limit, atMs).amount += amount;
  limit.held += amount;
}

/**
 * What a hold's end, a charge or a credit comes to here. Past capacity a refund is lost; and in a rolling
 * limit it goes to the second that was charged, or nowhere when that no longer counts.
 */
export function moveOf(
  limit: LimitState,
  { returned, spent, credited }: Pick<Move, "returned" | "spent" | "credited">,
  chargedAtMs: number,
  atMs: number,
): Move {
  const { spec } = limit.definition;
  const net = returned - spent + credited;
  let forfeitedLevel = 0;
  let alert: number | null = null;
  if (spec.kind === "bucket") {
    const overfull = levelOf(limit, atMs) + net * LEVEL_PER_UNIT - (spec.capacity ?? 0) * LEVEL_PER_UNIT;
    forfeitedLevel = Math.max(0, overfull);
  } else if (spec.kind === "rolling" && net > 0) {
    const second = Math.floor(chargedAtMs / 1_000);
    const slot = counts(second, atMs)
      ? limit.slots.find((candidate) => candidate.second === second)
      : undefined;
    forfeitedLevel = net - Math.min(net, slot?.amount ?? 0);
  } else if (spec.kind === "window") {
    const before = limit.spent / (spec.capacity ?? 1);
    const after = (limit.spent + spent) / (spec.capacity ?? 1);
    for (const share of spec.alerts)
      if (before < share && share <= after && share > (alert ?? 0)) alert = share;
  }
  return { limit: limit.key, returned, spent, credited, forfeitedLevel, alert };
}

export function apply(limit: LimitState, move: Move, chargedAtMs: number, atMs: number): void {
  const { returned, spent, credited, forfeitedLevel } = move;
  const net = returned - spent + credited;
  advance(limit, atMs);
  switch (limit.definition.spec.kind) {
    case "bucket":
      limit.level += net * LEVEL_PER_UNIT - forfeitedLevel;
      break;
    case "window":
      limit.spent += spent - credited;
      break;
    case "rolling":
      if (net < 0) slotOf(limit, atMs).amount -= net;
      else if (net > forfeitedLevel) {
        const second = Math.floor(chargedAtMs / 1_000);
        const slot = limit.slots.find((candidate) => candidate.second === second);
        if (slot !== undefined) slot.amount -= net - forfeitedLevel;
      }
      break;
    case "gauge":
      break;
  }
  limit.held -= returned;
  limit.settledTotal += spent;
  limit.creditedTotal += credited;
  limit.forfeitedLevel += forfeitedLevel;
}

/** The window has ended: what was held in it stays charged to it. */
export function turnWindow(limit: LimitState): void {
  limit.held = 0;
  limit.spent = 0;
}

/** One more call has left. The maximum follows now and then, for a median costs more than a sample. */
export function observe(limit: LimitState, stayMs: number, atMs: number): void {
  const { spec } = limit.definition;
  if (limit.stay === null || spec.kind !== "gauge" || spec.allowancePerMinute === null) return;
  observeStay(limit.stay, stayMs, atMs);
  if (limit.autoMax === null || limit.stay.samples % 8 === 0) derive(limit);
}

function derive(limit: LimitState): void {
  const { spec } = limit.definition;
  if (limit.stay === null || spec.kind !== "gauge" || spec.allowancePerMinute === null) return;
  const believedMs = believedStayMs(limit.stay);
  if (believedMs !== null) limit.autoMax = littlesLaw(spec.allowancePerMinute, spec.headroom, believedMs);
}

/** Equal to one that was just opened, so that nothing is lost by forgetting it. Unscoped ones are kept for their totals. */
export function atRest(limit: LimitState, atMs: number): boolean {
  const { kind } = limit.definition.spec;
  if (limit.held !== 0 || limit.stay !== null || limit.key === limitNameOf(limit.key)) return false;
  return kind === "gauge" || unitsOf(limit, atMs) === capacityOf(limit);
}

function advance(limit: LimitState, atMs: number): void {
  limit.level = limit.definition.spec.kind === "bucket" ? levelOf(limit, atMs) : 0;
  limit.asOfMs = Math.max(limit.asOfMs, atMs);
}

/** The second of now; seconds that no longer count are dropped on the way. */
function slotOf(limit: LimitState, atMs: number): { amount: number } {
  const second = Math.floor(atMs / 1_000);
  while (limit.slots[0] !== undefined && !counts(limit.slots[0].second, atMs)) limit.slots.shift();
  const last = limit.slots.at(-1);
  if (last?.second === second) return last;
  const slot = { second, amount: 0 };
  limit.slots.push(slot);
  return slot;
}
