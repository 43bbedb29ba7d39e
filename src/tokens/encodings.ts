/**
 * The counters, one per encoding, loaded on first use and kept for the isolate's life.
 * Vocabularies and split patterns are js-tiktoken's; its encoder is not used, because its merge is quadratic.
 * Special tokens are unknown here: a control-token spelling in a prompt is ordinary text, as it is to the provider.
 */
import type { Count, CountBudget, Counter, EncodingName } from "./counter.ts";
import { Merger, SEGMENT_BYTES } from "./merge.ts";
import { utf8Length } from "./utf8.ts";
import { NO_RANK, Vocabulary, type VocabularyFile } from "./vocabulary.ts";

/** Literal specifiers, so that a bundler can see them. */
const FILES: Readonly<Record<EncodingName, () => Promise<{ readonly default: VocabularyFile }>>> = {
  o200k_base: () => import("js-tiktoken/ranks/o200k_base"),
  cl100k_base: () => import("js-tiktoken/ranks/cl100k_base"),
};

const loading = new Map<EncodingName, Promise<Counter>>();

/** One load per encoding however many requests ask at once; a failed load is forgotten, so the next request tries again. */
export function loadCounter(name: EncodingName): Promise<Counter> {
  const known = loading.get(name);
  if (known !== undefined) return known;
  const load = FILES[name]().then((file) => new BytePairCounter(name, file.default));
  loading.set(name, load);
  load.catch(() => loading.delete(name));
  return load;
}

/**
 * Merging steps of one budget: each some twenty nanoseconds, a third of a second in all. A count of steps gives the
 * same answer on every machine, which a clock would not. Enough for two and a half megabytes of words that are no
 * tokens as they stand, which become a million tokens: as much as the largest models read.
 */
const MERGE_STEPS_MAX = 16_000_000;

/**
 * The split pattern's backtracking stack grows with the run it matches, and overflows somewhere above this many
 * UTF-16 units. Longer text is split window by window.
 */
const WINDOW_UNITS = 2 ** 20;

/**
 * Merging is not minimal, so a cut can save a token: in trials on random letters, words and Thai never more than two.
 * As many are added for each cut, so that a count does not fall short.
 */
const CUT_TOKENS = 2;

class BytePairCounter implements Counter {
  readonly encoding: EncodingName;
  readonly #vocabulary: Vocabulary;
  readonly #merger: Merger;
  readonly #pieces: RegExp;
  readonly #encoder = new TextEncoder();

  constructor(encoding: EncodingName, file: VocabularyFile) {
    this.encoding = encoding;
    this.#vocabulary = new Vocabulary(file);
    this.#merger = new Merger(this.#vocabulary);
    this.#pieces = new RegExp(file.pat_str, "uy");
  }

  count(text: string, budget: CountBudget = { spentSteps: 0 }): Count {
    const wellFormed = text.toWellFormed();
    const tally: Tally = { tokens: 0, bounded: false, bytes: 0, budget };
    for (let from = 0; from < wellFormed.length; ) {
      const to = windowEnd(wellFormed, from);
      this.#countWindow(
        from === 0 && to === wellFormed.length ? wellFormed : wellFormed.slice(from, to),
        tally,
      );
      if (to < wellFormed.length) addCut(tally);
      from = to;
    }
    // No text has more tokens than bytes, whatever the cuts have added.
    return { tokens: Math.min(tally.tokens, tally.bytes), bounded: tally.bounded };
  }

  #countWindow(text: string, tally: Tally): void {
    const bytes = this.#encoder.encode(text);
    tally.bytes += bytes.length;
    const ascii = bytes.length === text.length;
    const pieces = this.#pieces;
    let byteStart = 0;
    pieces.lastIndex = 0;
    for (let start = 0; start < text.length; start = pieces.lastIndex) {
      // The pattern matches any text at all; were it ever not to, the rest counts as its bytes.
      if (!pieces.test(text)) {
        tally.tokens += bytes.length - byteStart;
        tally.bounded = true;
        return;
      }
      const byteEnd =
        byteStart + (ascii ? pieces.lastIndex - start : utf8Length(text, start, pieces.lastIndex));
      if (this.#vocabulary.rankOf(bytes, byteStart, byteEnd) !== NO_RANK) tally.tokens += 1;
      else this.#merge(bytes, byteStart, byteEnd, tally);
      byteStart = byteEnd;
    }
  }

  /** One piece that is not itself a token: segment by segment, until the budget is spent. */
  #merge(bytes: Uint8Array, start: number, end: number, tally: Tally): void {
    let previous: Segment | null = null;
    for (let from = start; from < end; ) {
      const to = segmentEnd(bytes, from, end);
      // A run of one character, the usual attack and the usual padding, is the same segment over and over.
      if (previous === null || !sameBytes(bytes, previous.from, previous.to, from, to)) {
        if (!spend(tally.budget, mergeSteps(to - from))) {
          tally.tokens += end - from;
          tally.bounded = true;
          return;
        }
        previous = { from, to, tokens: this.#merger.count(bytes, from, to) };
      }
      tally.tokens += previous.tokens;
      if (to < end) addCut(tally);
      from = to;
    }
  }
}

interface Tally {
  tokens: number;
  bounded: boolean;
  bytes: number;
  readonly budget: CountBudget;
}

/** False when not enough is left. Nothing is spent then, so a smaller piece may still be merged. */
function spend(budget: CountBudget, steps: number): boolean {
  if (budget.spentSteps + steps > MERGE_STEPS_MAX) return false;
  budget.spentSteps += steps;
  return true;
}

function addCut(tally: Tally): void {
  tally.tokens += CUT_TOKENS;
  tally.bounded = true;
}

/** A merged range of the bytes. */
interface Segment {
  readonly from: number;
  readonly to: number;
  readonly tokens: number;
}

function sameBytes(bytes: Uint8Array, aFrom: number, aTo: number, bFrom: number, bTo: number): boolean {
  if (aTo - aFrom !== bTo - bFrom) return false;
  for (let a = aFrom, b = bFrom; a < aTo; a++, b++) if (bytes[a] !== bytes[b]) return false;
  return true;
}

/** The end of the window that starts at `from`: never between two surrogates of one character. */
function windowEnd(text: string, from: number): number {
  const to = from + WINDOW_UNITS;
  if (to >= text.length) return text.length;
  const unit = text.charCodeAt(to);
  return unit >= 0xdc00 && unit <= 0xdfff ? to - 1 : to;
}

/** The end of the segment that starts at `from`: never inside a character. */
function segmentEnd(bytes: Uint8Array, from: number, end: number): number {
  let to = from + SEGMENT_BYTES;
  if (to >= end) return end;
  while (((bytes[to] as number) & 0xc0) === 0x80) to -= 1;
  return to;
}

/** n log n, with the look-ups that each byte costs besides. */
function mergeSteps(length: number): number {
  return length * (2 + 32 - Math.clz32(length));
}
