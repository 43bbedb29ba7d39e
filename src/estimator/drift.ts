/**
 * Drift: what a provider bills for the input of a model, against what was counted of it. One ratio a model, learnt from
 * exact settlements and applied to the next counts. Where a provider's tokenizer is public and the rendering known it
 * stays at one; for the others it is what makes a count worth holding by.
 */

export interface Drift {
  readonly samples: number;
  /** Sums over the samples, each older one weighing less. */
  readonly countedTokens: number;
  readonly billedTokens: number;
}

/** Until so many prompts were billed, what was presumed holds. */
export const DRIFT_SAMPLES_MIN = 30;

/** A sum keeps so much of itself with each sample: half the weight lies in the last 44. */
const KEPT = 1 - 1 / 64;

/** A longer prompt weighs no more than this, so that one does not speak for all. */
const SAMPLE_TOKENS_MAX = 8_192;

/** Ratios are told to four places. */
const PRECISION = 10_000;

/** Beyond these, something else than a tokenizer differs. */
const RATIO_MIN = 0.5;
export const DRIFT_MAX = 2.5;

export function learnDrift(known: Drift | undefined, countedTokens: number, billedTokens: number): Drift {
  const { samples, ...sums } = known ?? { samples: 0, countedTokens: 0, billedTokens: 0 };
  const weight = Math.min(countedTokens, SAMPLE_TOKENS_MAX);
  return {
    samples: samples + 1,
    countedTokens: sums.countedTokens * KEPT + weight,
    billedTokens: sums.billedTokens * KEPT + billedTokens * (weight / countedTokens),
  };
}

/** What to multiply a count by. */
export function driftOf(known: Drift | undefined, presumed: number): number {
  if (known === undefined || known.samples < DRIFT_SAMPLES_MIN) return presumed;
  const ratio = Math.round((known.billedTokens / known.countedTokens) * PRECISION) / PRECISION;
  return Math.min(DRIFT_MAX, Math.max(RATIO_MIN, ratio));
}

/** What is expected to be billed, rounded up: by the ratio, and not by what binary fractions leave over. */
export function expectedTokens(countedTokens: number, drift: number): number {
  return Math.ceil(Math.round(countedTokens * drift * PRECISION) / PRECISION);
}
