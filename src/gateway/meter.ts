/**
 * Reads what goes by. The caller's bytes never wait for it and never change by it, but for the one
 * usage chunk that we asked for and they did not.
 */
import type { Dialect, Reading, Usage, UsageReport } from "../providers/dialect.ts";
import { mergeUsage, wholeUsage } from "../providers/usage.ts";
import type { Counter, RunningCount } from "../tokens/counter.ts";

/** What has been learnt of a call's cost so far: running totals. */
export class Meter {
  readonly #dialect: Dialect;
  /** What was seen of the output. */
  readonly #seen: RunningCount;
  readonly #expectedInputTokens: number;
  readonly #completions: number;
  #usage: UsageReport | null = null;
  /** Something of an answer came, if only a word. */
  anyOutput = false;
  /** The provider reported a failure inside its 200. */
  failed = false;
  /** What the provider calls its answer; null until it said so. */
  answerId: string | null = null;
  /** Payloads that could not be read. */
  malformed = 0;
  /** Usage has come with the end of all output or after it, and no output since: the figure is the final one. */
  final = false;
  /** Output came after the last figure, which therefore cannot be the whole. */
  #staleUsage = false;
  #finishedChoices = 0;

  constructor(dialect: Dialect, counter: Counter, expectedInputTokens: number, completions: number) {
    this.#dialect = dialect;
    this.#seen = counter.running();
    this.#expectedInputTokens = expectedInputTokens;
    this.#completions = completions;
  }

  /** The provider's own figure; null until it gave one. */
  get reported(): UsageReport | null {
    return this.#usage;
  }

  /** The provider's figure for the whole answer so far; null when it gave none, or wrote on after it. */
  get exact(): Usage | null {
    return this.failed || this.#staleUsage ? null : wholeUsage(this.#usage);
  }

  /** All output has been generated: a unary answer with its first byte, a stream when every choice has said why it ended. */
  get finished(): boolean {
    return this.#finishedChoices >= this.#completions;
  }

  /** How answers of this dialect come, beside whole and as server-sent events. */
  get forms(): { readonly bodyEndBytes: number | null; readonly streamsElements: boolean } {
    const { bodyEndBytes = null, streamsElements = false } = this.#dialect;
    return { bodyEndBytes, streamsElements };
  }

  /** A unary answer begins when it is complete. */
  answeredWhole(): void {
    this.#finishedChoices = this.#completions;
  }

  /** The best figure there is: the provider's where it is the larger, our own count of what was seen otherwise. */
  get soFar(): Usage {
    const usage = this.#usage;
    return {
      inputTokens: usage?.inputTokens ?? this.#expectedInputTokens,
      outputTokens: Math.max(usage?.outputTokens ?? 0, this.#seenTokens),
      cachedInputTokens: usage?.cachedInputTokens ?? 0,
      cacheWriteTokens: usage?.cacheWriteTokens ?? 0,
      reasoningTokens: usage?.reasoningTokens ?? 0,
    };
  }

  get #seenTokens(): number {
    return Math.ceil(this.#seen.tokens * this.#dialect.tokensPerCounted);
  }

  readEvent(data: string): Reading {
    return this.#take(this.#dialect.readEvent(data));
  }

  readBody(text: string): Reading {
    return this.#take(this.#dialect.readBody(text));
  }

  /** A piece of a body that cannot be parsed: all of its text counts as output. */
  readFragment(text: string): void {
    this.malformed += 1;
    this.#see(text);
  }

  #see(text: string): void {
    if (text === "") return;
    this.#seen.push(text);
    this.anyOutput = true;
  }

  #take(reading: Reading): Reading {
    // Totals, never deltas: a newer figure replaces the older, and a later null clears nothing.
    if (reading.usage !== null) this.#usage = mergeUsage(this.#usage ?? {}, reading.usage);
    this.#see(reading.text);
    if (reading.usage !== null || reading.text !== "") this.#staleUsage = reading.usage === null;
    this.answerId ??= reading.answerId;
    this.#finishedChoices += reading.finishedChoices;
    const saidAll = reading.usageOnly || (this.finished && reading.usage !== null);
    this.final = saidAll || (this.final && reading.text === "");
    if (reading.error) this.failed = true;
    if (reading.malformed) this.malformed += 1;
    return reading;
  }
}
