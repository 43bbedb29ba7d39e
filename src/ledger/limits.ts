/**
 * One number per limit: its level. A bucket's level refills and may go below zero; a gauge's level is
 * what is still free of its maximum and comes back only when a lease gives it up.
 */
import type { Limit, RequestClass } from "../policy/schema.ts";
import { LEVEL_PER_UNIT } from "./bounds.ts";
import type { Size } from "./types.ts";

export type Unit = Limit["unit"];

/** A limit with a bound; unlimited ones (`null`) have no state and are never asked. */
export interface LimitState {
  readonly name: string;
  /** Counts the policies until this limit began; kept as long as each policy carries the limit over. */
  readonly generation: number;
  readonly kind: Limit["kind"];
  readonly unit: Unit;
  /** In units. */
  readonly capacity: number;
  readonly refillPerMinute: number;
  /** The level below which the batch class may not take it. */
  readonly batchFloorLevel: number;
  /** As of `asOfMs`, in `LEVEL_PER_UNIT`ths. */
  level: number;
  asOfMs: number;
  /** Holds not yet settled, in units. */
  held: number;
  /** Actual charges, in units; only ever rises. */
  settledTotal: number;
  /** Refunds that found the bucket full; only ever rises. */
  forfeitedLevel: number;
}

/** Starts full. Null for an unlimited one. */
export function openLimit(limit: Limit, generation: number, atMs: number): LimitState | null {
  const capacity = limit.kind === "bucket" ? limit.capacity : limit.max;
  if (capacity === null) return null;
  const capacityLevel = capacity * LEVEL_PER_UNIT;
  return {
    name: limit.name,
    generation,
    kind: limit.kind,
    unit: limit.unit,
    capacity,
    refillPerMinute: limit.kind === "bucket" ? limit.refillPerMinute : 0,
    batchFloorLevel: limit.kind === "bucket" ? Math.round(capacityLevel * limit.batchFloor) : 0,
    level: capacityLevel,
    asOfMs: atMs,
    held: 0,
    settledTotal: 0,
    forfeitedLevel: 0,
  };
}

/** A policy change keeps debt, holds and the refill clock: only what exceeds the new capacity is lost. */
export function carryOver(previous: LimitState, next: LimitState, atMs: number): LimitState {
  const capacityLevel = next.capacity * LEVEL_PER_UNIT;
  const level =
    next.kind === "gauge"
      ? capacityLevel - previous.held * LEVEL_PER_UNIT
      : Math.min(levelAt(previous, atMs), capacityLevel);
  const { generation, held, settledTotal, forfeitedLevel } = previous;
  return { ...next, level, asOfMs: atMs, generation, held, settledTotal, forfeitedLevel };
}

export function levelAt(limit: LimitState, atMs: number): number {
  if (limit.refillPerMinute === 0) return limit.level;
  const refilled = limit.level + limit.refillPerMinute * (atMs - limit.asOfMs);
  return Math.min(refilled, limit.capacity * LEVEL_PER_UNIT);
}

/** How much of a limit a call of this size takes. */
export function amountOf(unit: Unit, size: Size): number {
  switch (unit) {
    case "tokens":
    case "in_flight_tokens":
      return size.inputTokens + size.outputTokens;
    case "input_tokens":
      return size.inputTokens;
    case "output_tokens":
      return size.outputTokens;
    case "requests":
    case "concurrency":
      return 1;
  }
}

/** The lowest level that this class may leave behind. */
export function floorFor(limit: LimitState, requestClass: RequestClass): number {
  return requestClass === "batch" ? limit.batchFloorLevel : 0;
}
