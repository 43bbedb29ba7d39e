/** How much of a limit a call takes, in the limit's unit: always whole, and never rounded in the caller's favour. */
import type { Limit } from "../policy/limit-schema.ts";
import type { Price } from "../policy/resolve.ts";
import type { Size } from "./types.ts";

const PICO_PER_NANO = 1_000;

/** A size, and how much of its input was cached; a hold presumes that none is. */
export interface Priced extends Size {
  readonly cachedInputTokens?: number;
}

export function amountOf(limit: Limit, size: Priced, price: Price | null): number {
  switch (limit.unit) {
    case "requests":
    case "concurrency":
      return 1;
    case "in_flight_tokens":
      return size.inputTokens + size.outputTokens;
    case "output_tokens":
      return size.outputTokens;
    case "input_tokens":
      return weighted(size, limit.cachedInputWeight);
    case "tokens":
      return weighted(size, limit.cachedInputWeight) + size.outputTokens;
    case "nano_usd":
      return price === null ? 0 : nanoUsdOf(size, price);
  }
}

function weighted(size: Priced, cachedInputWeight: number): number {
  const cached = cachedOf(size);
  return size.inputTokens - cached + Math.ceil(cached * cachedInputWeight);
}

function nanoUsdOf(size: Priced, price: Price): number {
  const cached = cachedOf(size);
  const pico =
    (size.inputTokens - cached) * price.inputPicoUsd +
    cached * price.cachedInputPicoUsd +
    size.outputTokens * price.outputPicoUsd;
  return Math.ceil(pico / PICO_PER_NANO);
}

const cachedOf = (size: Priced): number => Math.min(size.cachedInputTokens ?? 0, size.inputTokens);

/** The most output whose amount stays within `most`, beside this input; Infinity where output does not count. */
export function outputWithin(limit: Limit, inputTokens: number, most: number, price: Price | null): number {
  switch (limit.unit) {
    case "output_tokens":
      return Math.floor(most);
    case "tokens":
      return Math.floor(most - inputTokens);
    case "nano_usd": {
      if (price === null || price.outputPicoUsd === 0) return Infinity;
      const left = most * PICO_PER_NANO - inputTokens * price.inputPicoUsd;
      return Math.floor(left / price.outputPicoUsd);
    }
    default:
      return Infinity;
  }
}
