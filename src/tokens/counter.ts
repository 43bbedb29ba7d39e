/** A vocabulary's counter. Work is bounded for every input; nothing throws. */
export interface Counter {
  readonly encoding: EncodingName;
  /** Tokens of `text`, every control-token spelling taken as ordinary text. */
  count(text: string): Count;
}

export type EncodingName = "o200k_base" | "cl100k_base";

export interface Count {
  readonly tokens: number;
  /** True when some run was counted by an upper bound instead of being merged. */
  readonly bounded: boolean;
}
