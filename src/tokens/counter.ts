/** A vocabulary's counter. Work is bounded for every input; nothing throws. */
export interface Counter {
  readonly encoding: EncodingName;
  /**
   * Tokens of `text`, every control-token spelling taken as ordinary text. Texts that one request brings together
   * share a budget; a text that comes alone has one of its own.
   */
  count(text: string, budget?: CountBudget): Count;
}

/**
 * Merging steps of one request: each some nanoseconds, a quarter of a second in all. A count of steps gives the
 * same answer on every machine, which a clock would not. Enough for four megabytes of words that are no tokens,
 * which is more than any model reads.
 */
const MERGE_STEPS_MAX = 24_000_000;

/** What is left to spend on merging. A request's texts draw on one, or many small ones would each get the whole. */
export class CountBudget {
  #left = MERGE_STEPS_MAX;

  /** False when there is not enough left: whoever asks then counts by a bound. Never spends what it refuses. */
  spend(steps: number): boolean {
    if (steps > this.#left) return false;
    this.#left -= steps;
    return true;
  }
}

export type EncodingName = "o200k_base" | "cl100k_base";

export interface Count {
  readonly tokens: number;
  /** True when some run was counted by an upper bound instead of being merged. */
  readonly bounded: boolean;
}
