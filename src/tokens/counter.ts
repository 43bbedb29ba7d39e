/** A vocabulary's counter. Work is bounded for every input; nothing throws. */
export interface Counter {
  readonly encoding: EncodingName;
  /** Names the vocabulary as packed: counts of another digest are other counts. */
  readonly digest: string;
  /**
   * Tokens of `text`, every control-token spelling taken as ordinary text. Texts that one request brings together
   * share a budget, or many small ones would each get the whole; a text that comes alone has one of its own.
   */
  count(text: string, budget?: CountBudget): Count;
  /** Of a text that is still being written: each addition costs what it adds. */
  running(): RunningCount;
}

/** Starts at nothing spent; the counter adds to it, and knows when it is too much. */
export interface CountBudget {
  spentSteps: number;
}

export type EncodingName = "o200k_base" | "cl100k_base";

export interface Count {
  readonly tokens: number;
  /** True when some run was counted by an upper bound instead of being encoded. */
  readonly bounded: boolean;
}

export interface RunningCount {
  push(text: string): void;
  /** Of all that was pushed, as if it were one text. */
  readonly tokens: number;
}
