/**
 * Taps stand between the provider's bytes and the caller's, one for each form that an answer comes in: they let the
 * bytes go on and give the meter what they say.
 */
import type { Reading } from "../providers/dialect.ts";
import { joined } from "./body.ts";
import { UNARY_READ_BYTES_MAX } from "./bounds.ts";
import { Ends } from "./ends.ts";
import { JsonElements } from "./json-stream.ts";
import type { Meter } from "./meter.ts";
import { type SseFrame, SseFramer } from "./sse.ts";

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
  if (events) return stripUsage ? strippingTap(meter) : streamTap(meter);
  const { bodyEndBytes, streamsElements } = meter.forms;
  if (stream && streamsElements) return elementsTap(meter);
  return bodyEndBytes === null ? unaryTap(meter) : endsTap(meter, bodyEndBytes);
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

/** A stream that is one JSON array, whose elements are the events. */
function elementsTap(meter: Meter): Tap {
  const elements = new JsonElements(UNARY_READ_BYTES_MAX);
  return {
    push: (chunk) => ({
      forward: [chunk],
      read() {
        for (const element of elements.push(chunk)) meter.readEvent(element);
        const excess = elements.overflow();
        if (excess !== null) meter.readFragment(excess);
      },
    }),
    end() {
      const last = elements.flush();
      if (last !== null) meter.readEvent(last);
      return [];
    },
    cut: () => {},
  };
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
