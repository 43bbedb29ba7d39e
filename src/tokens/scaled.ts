import type { Counter } from "./counter.ts";

/** Counts for models whose own vocabulary is not public: so many tokens for each that this one finds, rounded up. */
export function scaledCounter(counter: Counter, tokensPerCounted: number): Counter {
  if (tokensPerCounted === 1) return counter;
  return {
    encoding: counter.encoding,
    count(text, budget) {
      const { tokens, bounded } = counter.count(text, budget);
      return { tokens: Math.ceil(tokens * tokensPerCounted), bounded };
    },
  };
}
