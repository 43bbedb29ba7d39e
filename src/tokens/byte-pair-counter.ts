/**
 * Counts text with one vocabulary. Special tokens are unknown here: a control-token spelling in a prompt is ordinary
 * text, as it is to the provider. A lone surrogate counts as U+FFFD, which is what an encoder writes.
 */
import { BytePair } from "./byte-pair.ts";
import type { Count, CountBudget, Counter, EncodingName, RunningCount } from "./counter.ts";
import { Splitter } from "./split.ts";
import type { Vocabulary } from "./vocabulary.ts";

/**
 * Steps of one budget: each from three to fifty nanoseconds, well below a second in all. A count of steps gives the
 * same answer on every machine, which a clock would not. Enough for twelve megabytes of prose, or for four of random
 * letters, which become two million tokens: more than any model reads.
 */
const STEPS_MAX = 16_000_000;

/**
 * Encoding is not minimal, so a cut can save a token: in trials on random letters, words and Thai never more than two.
 * As many are added for each cut, so that a count does not fall short.
 */
const CUT_TOKENS = 2;

/** UTF-16 units that are encoded at once; a unit is at most three bytes. */
const SLICE_UNITS = 2 ** 15;
const UNIT_BYTES_MAX = 3;

/** How much text waits for its end, in bytes: before a place to cut is looked for, and at most. */
interface Patience {
  readonly bytes: number;
  readonly bytesMax: number;
}

const WHOLE: Patience = { bytes: 2 ** 15, bytesMax: 2 ** 20 };
const BEING_WRITTEN: Patience = { bytes: 2 ** 8, bytesMax: 2 ** 12 };

export class BytePairCounter implements Counter {
  readonly encoding: EncodingName;
  readonly digest: string;
  readonly #pieces: PieceCounter;
  /** Counting is synchronous, so one serves every text. */
  readonly #whole: PendingText;

  constructor(encoding: EncodingName, vocabulary: Vocabulary) {
    this.encoding = encoding;
    this.digest = vocabulary.digest;
    this.#pieces = new PieceCounter(vocabulary, encoding === "o200k_base");
    this.#whole = new PendingText(this.#pieces, WHOLE);
  }

  count(text: string, budget: CountBudget = { spentSteps: 0 }): Count {
    const tally: Tally = { tokens: 0, bounded: false, budget };
    this.#whole.push(text, tally);
    this.#whole.finish(tally);
    return { tokens: tally.tokens, bounded: tally.bounded };
  }

  running(): RunningCount {
    return new TextBeingWritten(new PendingText(this.#pieces, BEING_WRITTEN));
  }
}

interface Tally {
  tokens: number;
  bounded: boolean;
  readonly budget: CountBudget;
}

class PieceCounter {
  readonly splitter: Splitter;
  readonly #pairs: BytePair;

  constructor(vocabulary: Vocabulary, caseMatters: boolean) {
    this.splitter = new Splitter(vocabulary.classes, caseMatters);
    this.#pairs = new BytePair(vocabulary);
  }

  /** Adds the tokens of `bytes[0 .. end]`; past the budget, their bytes, which are never fewer. */
  add(bytes: Uint8Array, end: number, tally: Tally): void {
    const { budget } = tally;
    if (budget.spentSteps > STEPS_MAX) {
      tally.tokens += end;
      tally.bounded ||= end > 0;
      return;
    }
    const splitter = this.splitter;
    const pairs = this.#pairs;
    const before = pairs.steps;
    splitter.open(bytes, end);
    let tokens = 0;
    for (let from = 0; from < end; ) {
      const to = splitter.pieceEnd(from);
      tokens += to - from === 1 ? 1 : pairs.count(bytes, from, to);
      from = to;
    }
    tally.tokens += tokens;
    budget.spentSteps += pairs.steps - before;
  }
}

/**
 * Text that is counted slice by slice. Each is cut where a piece begins whatever stands around it, and what follows
 * the cut waits; so a text of any length takes a fixed amount of memory.
 */
class PendingText {
  readonly #pieces: PieceCounter;
  readonly #patience: Patience;
  readonly #encoder = new TextEncoder();
  #bytes: Uint8Array<ArrayBuffer>;
  #filled = 0;
  /** Where a cut was looked for in vain it is looked for again when there is twice as much. */
  #cutAtBytes: number;

  constructor(pieces: PieceCounter, patience: Patience) {
    this.#pieces = pieces;
    this.#patience = patience;
    this.#bytes = new Uint8Array(2 * patience.bytes);
    this.#cutAtBytes = patience.bytes;
  }

  push(text: string, tally: Tally): void {
    for (let from = 0; from < text.length; ) {
      const to = sliceEnd(text, from);
      this.#append(from === 0 && to === text.length ? text : text.slice(from, to));
      if (this.#filled >= this.#cutAtBytes) this.#cut(tally);
      from = to;
    }
  }

  /** Counts what waits, as if it were all. */
  finish(tally: Tally): void {
    this.peek("", tally);
    this.#filled = 0;
    this.#cutAtBytes = this.#patience.bytes;
  }

  /** Counts what waits and `next` as if it were all, and forgets it again. */
  peek(next: string, tally: Tally): void {
    const filled = this.#filled;
    this.#append(next);
    this.#pieces.add(this.#bytes, this.#filled, tally);
    this.#filled = filled;
  }

  #append(text: string): void {
    const needed = this.#filled + text.length * UNIT_BYTES_MAX;
    if (needed > this.#bytes.length) {
      const larger = new Uint8Array(Math.max(needed, 2 * this.#bytes.length));
      larger.set(this.#bytes.subarray(0, this.#filled));
      this.#bytes = larger;
    }
    this.#filled += this.#encoder.encodeInto(text, this.#bytes.subarray(this.#filled)).written;
  }

  #cut(tally: Tally): void {
    const { splitter } = this.#pieces;
    splitter.open(this.#bytes, this.#filled);
    let end = splitter.lastCut();
    if (end === 0 && this.#filled < this.#patience.bytesMax) {
      this.#cutAtBytes = 2 * this.#filled;
      return;
    }
    if (end === 0) {
      end = this.#filled;
      tally.tokens += CUT_TOKENS;
      tally.bounded = true;
    }
    this.#pieces.add(this.#bytes, end, tally);
    this.#bytes.copyWithin(0, end, this.#filled);
    this.#filled -= end;
    this.#cutAtBytes = Math.max(this.#patience.bytes, 2 * this.#filled);
  }
}

class TextBeingWritten implements RunningCount {
  readonly #pending: PendingText;
  readonly #counted: Tally = { tokens: 0, bounded: false, budget: { spentSteps: 0 } };
  /** The first half of a character whose second half has not come. */
  #half = "";
  /** Of all so far; null when something came since it was last asked for. */
  #tokens: number | null = 0;

  constructor(pending: PendingText) {
    this.#pending = pending;
  }

  push(text: string): void {
    if (text === "") return;
    const whole = this.#half + text;
    this.#half = isHighSurrogate(whole.charCodeAt(whole.length - 1)) ? whole.slice(-1) : "";
    this.#pending.push(this.#half === "" ? whole : whole.slice(0, -1), this.#counted);
    this.#tokens = null;
  }

  get tokens(): number {
    if (this.#tokens === null) {
      const rest: Tally = { tokens: 0, bounded: false, budget: { spentSteps: 0 } };
      this.#pending.peek(this.#half, rest);
      this.#tokens = this.#counted.tokens + rest.tokens;
    }
    return this.#tokens;
  }
}

/** The end of the slice that starts at `from`: never between two surrogates of one character. */
function sliceEnd(text: string, from: number): number {
  const to = from + SLICE_UNITS;
  if (to >= text.length) return text.length;
  return isHighSurrogate(text.charCodeAt(to - 1)) ? to - 1 : to;
}

function isHighSurrogate(unit: number): boolean {
  return unit >= 0xd800 && unit <= 0xdbff;
}
