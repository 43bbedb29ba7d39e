/**
 * Reads what goes by. The caller's bytes never wait for it and never change by it, but for the one
 * usage chunk that we asked for and they did not.
 */
import type { Dialect, Reading, Usage } from "../providers/dialect.ts";
import type { Counter } from "../tokens/counter.ts";
import { joined } from "./body.ts";
import { UNARY_READ_BYTES_MAX } from "./bounds.ts";
import { Ends } from "./ends.ts";
import { type SseFrame, SseFramer } from "./sse.ts";

/** What has been learnt of a call's cost so far: running totals. */
export class Meter {
  readonly #dialect: Dialect;
  readonly #counter: Counter;
  readonly #countedInputTokens: number;
  readonly #completions: number;
  #usage: Usage | null = null;
  #seenOutputTokens = 0;
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

  constructor(dialect: Dialect, counter: Counter, countedInputTokens: number, completions: number) {
    this.#dialect = dialect;
    this.#counter = counter;
    this.#countedInputTokens = countedInputTokens;
    this.#completions = completions;
  }

  /** The provider's own figure; null until it gave one. */
  get reported(): Usage | null {
    return this.#usage;
  }

  /** The provider's figure for the whole answer so far; null when it gave none, or wrote on after it. */
  get exact(): Usage | null {
    return this.failed || this.#staleUsage ? null : this.#usage;
  }

  /** All output has been generated: a unary answer with its first byte, a stream when every choice has said why it ended. */
  get finished(): boolean {
    return this.#finishedChoices >= this.#completions;
  }

  /** How much of each end of a unary answer is read; null where all of it is. */
  get bodyEndBytes(): number | null {
    return this.#dialect.bodyEndBytes ?? null;
  }

  /** A unary answer begins when it is complete. */
  answeredWhole(): void {
    this.#finishedChoices = this.#completions;
  }

  get anyOutput(): boolean {
    return this.#seenOutputTokens > 0;
  }

  /** The best figure there is: the provider's where it is the larger, our own count of what was seen otherwise. */
  get soFar(): Usage {
    const usage = this.#usage;
    return {
      inputTokens: usage?.inputTokens ?? this.#countedInputTokens,
      outputTokens: Math.max(usage?.outputTokens ?? 0, this.#seenOutputTokens),
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
    this.#seenOutputTokens += this.#counter.count(text).tokens;
  }

  #take(reading: Reading): Reading {
    // Totals, never deltas: a newer figure replaces the older, and a later null clears nothing.
    if (reading.usage !== null) this.#usage = reading.usage;
    if (reading.text !== "") this.#seenOutputTokens += this.#counter.count(reading.text).tokens;
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
  asked: { stream: boolean; stripUsage: boolean },
): Tap {
  const { stream, stripUsage } = asked;
  const events = contentType === null ? stream : /^text\/event-stream\b/i.test(contentType);
  if (!events) return meter.bodyEndBytes === null ? unaryTap(meter) : endsTap(meter, meter.bodyEndBytes);
  return stripUsage ? strippingTap(meter) : streamTap(meter);
}

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

/** Nothing between the ends is output, so a cut body is read like a whole one. */
function endsTap(meter: Meter, bytesEach: number): Tap {
  meter.answeredWhole();
  const ends = new Ends(bytesEach);
  const read = () => meter.readBody(ends.text());
  return {
    push(chunk) {
      ends.push(chunk);
      return { forward: [chunk], read: () => {} };
    },
    end() {
      read();
      return [];
    },
    cut: read,
  };
}
