/**
 * Reads what goes by. The caller's bytes never wait for it and never change by it, but for the one
 * usage chunk that we asked for and they did not.
 */
import type { Dialect, Reading, Usage, UsageReport } from "../providers/dialect.ts";
import { mergeUsage, wholeUsage } from "../providers/usage.ts";
import type { Counter, RunningCount } from "../tokens/counter.ts";
import { joined } from "./body.ts";
import { UNARY_READ_BYTES_MAX } from "./bounds.ts";
import { type SseFrame, SseFramer } from "./sse.ts";

/** What has been learnt of a call's cost so far: running totals. */
export class Meter {
  readonly #dialect: Dialect;
  /** What was seen of the output. */
  readonly #seen: RunningCount;
  readonly #countedInputTokens: number;
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
  /** The chunk that ends all usage has been seen and nothing came after it, so the figure is the final one. */
  final = false;
  /** Output came after the last figure, which therefore cannot be the whole. */
  #staleUsage = false;
  #finishedChoices = 0;

  constructor(dialect: Dialect, counter: Counter, countedInputTokens: number, completions: number) {
    this.#dialect = dialect;
    this.#seen = counter.running();
    this.#countedInputTokens = countedInputTokens;
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

  /** A unary answer begins when it is complete. */
  answeredWhole(): void {
    this.#finishedChoices = this.#completions;
  }

  /** The best figure there is: the provider's where it is the larger, our own count of what was seen otherwise. */
  get soFar(): Usage {
    const usage = this.#usage;
    return {
      inputTokens: usage?.inputTokens ?? this.#countedInputTokens,
      outputTokens: Math.max(usage?.outputTokens ?? 0, this.#seen.tokens),
      cachedInputTokens: usage?.cachedInputTokens ?? 0,
      cacheWriteTokens: usage?.cacheWriteTokens ?? 0,
      reasoningTokens: usage?.reasoningTokens ?? 0,
    };
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
    this.final = reading.usageOnly || (this.final && reading.text === "");
    this.#finishedChoices += reading.finishedChoices;
    if (reading.error) this.failed = true;
    if (reading.malformed) this.malformed += 1;
    return reading;
  }
}

/** Turns the provider's chunks into the caller's, reading on the way. */
export interface Tap {
  /** What may be forwarded now. `read` is called after it was sent on. */
  push(chunk: Uint8Array): { readonly forward: readonly Uint8Array[]; readonly read: () => void };
  /** The provider's body has ended. */
  end(): readonly Uint8Array[];
  /** It was cut instead: what came of it is read as far as it goes. */
  cut(): void;
}

/** By what the provider says it sends, whatever the request asked for; by the request only where the provider is silent. */
export function tapFor(
  contentType: string | null,
  meter: Meter,
  { stream, stripUsage, free }: { stream: boolean; stripUsage: boolean; free: boolean },
): Tap {
  if (free) return PASSING_TAP;
  const events = contentType === null ? stream : /^text\/event-stream\b/i.test(contentType);
  if (!events) return unaryTap(meter);
  return stripUsage ? strippingTap(meter) : streamTap(meter);
}

const PASSING_TAP: Tap = {
  push: (chunk) => ({ forward: [chunk], read: () => {} }),
  end: () => [],
  cut: () => {},
};

function streamTap(meter: Meter): Tap {
  const framer = new SseFramer();
  return {
    push: (chunk) => ({
      forward: [chunk],
      read: () => framer.push(chunk).forEach((frame) => readFrame(meter, frame)),
    }),
    end() {
      const last = framer.flush();
      if (last !== null) readFrame(meter, last);
      return [];
    },
    cut: () => {},
  };
}

/** Must see an event whole before it lets it go: only then is it known not to be the usage chunk. */
function strippingTap(meter: Meter): Tap {
  const framer = new SseFramer();
  const kept = (frames: readonly SseFrame[]) =>
    frames.filter((frame) => readFrame(meter, frame)?.usageOnly !== true).map((frame) => frame.bytes);
  return {
    push: (chunk) => ({ forward: kept(framer.push(chunk)), read: () => {} }),
    end() {
      const last = framer.flush();
      return last === null ? [] : kept([last]);
    },
    cut: () => {},
  };
}

/** An event may be followed by words that belong to none: a bare error body, cut into the stream. */
function readFrame(meter: Meter, frame: SseFrame): Reading | null {
  const reading = frame.data === null ? null : meter.readEvent(frame.data);
  if (frame.raw === null) return reading;
  meter.readBody(frame.raw);
  return null;
}

function unaryTap(meter: Meter): Tap {
  meter.answeredWhole();
  const chunks: Uint8Array[] = [];
  let length = 0;
  const takeFragment = () => meter.readFragment(new TextDecoder().decode(joined(chunks.splice(0), length)));
  return {
    push(chunk) {
      chunks.push(chunk);
      length += chunk.byteLength;
      if (length > UNARY_READ_BYTES_MAX) {
        takeFragment();
        length = 0;
      }
      return { forward: [chunk], read: () => {} };
    },
    end() {
      meter.readBody(new TextDecoder().decode(joined(chunks, length)));
      return [];
    },
    cut: takeFragment,
  };
}
