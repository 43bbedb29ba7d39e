/**
 * Cuts a stream of server-sent events into whole events without touching a byte: the frames, put end to end,
 * are exactly the input, however the network cut it. Text is decoded once per complete event, beside the bytes.
 * Memory is bounded: an event over the limit is let go in pieces, unread, and reading resumes after it.
 */

export interface SseFrame {
  /** The event as it came, its closing blank line included. Dropping a frame drops exactly that event. */
  readonly bytes: Uint8Array;
  /** The `data` lines joined with line feeds; null when the event has none or was not read. */
  readonly data: string | null;
  /** Lines that are no field of an event stream, such as a bare JSON error body; null when there are none. */
  readonly raw: string | null;
  /** A piece of an event too long to hold; its bytes still belong to the answer. */
  readonly oversize: boolean;
}

/** Longer than any event worth metering, and small beside the memory of an isolate. */
const EVENT_BYTES_MAX = 2 ** 20;

const LF = 0x0a;
const CR = 0x0d;

export class SseFramer {
  readonly #eventBytesMax: number;
  /** The start of an event whose end has not come yet. */
  readonly #pending = new ByteBuffer();
  /** The event is over the limit and flows in pieces. */
  #oversize = false;
  /** The current line has no byte so far. */
  #lineEmpty = true;
  /** The last byte was a CR, so an LF that follows belongs to it. */
  #afterCr = false;
  /** The blank line has come, ended by that CR. */
  #ended = false;
  #first = true;

  constructor(eventBytesMax: number = EVENT_BYTES_MAX) {
    this.#eventBytesMax = eventBytesMax;
  }

  /** The events that this chunk completes. A frame may share memory with the chunk; what is kept back is copied. */
  push(chunk: Uint8Array): SseFrame[] {
    const frames: SseFrame[] = [];
    let start = 0;
    const completeAt = (end: number) => {
      const frame = this.#complete(chunk.subarray(start, end));
      if (frame !== null) frames.push(frame);
      start = end;
    };
    for (let index = 0; index < chunk.length; index++) {
      const byte = chunk[index];
      if (this.#afterCr) {
        this.#afterCr = false;
        if (this.#ended) completeAt(byte === LF ? index + 1 : index);
        if (byte === LF) continue;
      }
      if (byte === LF && this.#lineEmpty) completeAt(index + 1);
      else if (byte === CR) {
        this.#afterCr = true;
        this.#ended = this.#lineEmpty;
        this.#lineEmpty = true;
      } else this.#lineEmpty = byte === LF;
    }
    const piece = this.#keep(chunk.subarray(start));
    if (piece !== null) frames.push(piece);
    return frames;
  }

  /** What is left at the end of the stream: the last event may lack its blank line. */
  flush(): SseFrame | null {
    return this.#complete(new Uint8Array(0));
  }

  /** Null when the event's last byte has flowed already, in a piece. */
  #complete(tail: Uint8Array): SseFrame | null {
    const bytes = this.#pending.takeWith(tail);
    const oversize = this.#oversize || bytes.length > this.#eventBytesMax;
    const body = this.#first ? withoutByteOrderMark(bytes) : bytes;
    this.#first = false;
    this.#oversize = false;
    this.#ended = false;
    this.#lineEmpty = true;
    if (bytes.length === 0) return null;
    return oversize ? unread(bytes) : { bytes, ...readFields(body), oversize };
  }

  /** Holds back the start of an event; once it is too long, gives all of it back as a piece. */
  #keep(rest: Uint8Array): SseFrame | null {
    if (rest.length === 0) return null;
    if (!this.#oversize && this.#pending.length + rest.length <= this.#eventBytesMax) {
      this.#pending.append(rest);
      return null;
    }
    this.#oversize = true;
    return unread(this.#pending.takeWith(rest));
  }
}

function unread(bytes: Uint8Array): SseFrame {
  return { bytes, data: null, raw: null, oversize: true };
}

/** Grows by doubling: a stream may arrive a byte at a time, and a list of chunks would cost more than the bytes. */
class ByteBuffer {
  #bytes = new Uint8Array(0);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  append(chunk: Uint8Array): void {
    const needed = this.#length + chunk.length;
    if (needed > this.#bytes.length) {
      const grown = new Uint8Array(Math.max(needed, 2 * this.#bytes.length, 1024));
      grown.set(this.#bytes.subarray(0, this.#length));
      this.#bytes = grown;
    }
    this.#bytes.set(chunk, this.#length);
    this.#length = needed;
  }

  /** Everything held, followed by `tail`; the buffer is empty afterwards. With nothing held that is `tail` itself. */
  takeWith(tail: Uint8Array): Uint8Array {
    if (this.#length === 0) return tail;
    const taken = new Uint8Array(this.#length + tail.length);
    taken.set(this.#bytes.subarray(0, this.#length));
    taken.set(tail, this.#length);
    this.#length = 0;
    return taken;
  }
}

/** The mark is dropped by hand, at the start of the stream only, where the format says so. */
const decoder = new TextDecoder("utf-8", { fatal: false, ignoreBOM: true });

function withoutByteOrderMark(bytes: Uint8Array): Uint8Array {
  return bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? bytes.subarray(3) : bytes;
}

function readFields(bytes: Uint8Array): { data: string | null; raw: string | null } {
  const data: string[] = [];
  const raw: string[] = [];
  for (let start = 0; start < bytes.length; ) {
    let end = start;
    while (end < bytes.length && bytes[end] !== LF && bytes[end] !== CR) end += 1;
    const line = decoder.decode(bytes.subarray(start, end));
    // Only the first colon parts a field from its value; a line that starts with one is a comment.
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    if (field === "data") data.push(colon < 0 ? "" : valueAfter(line, colon));
    else if (!IGNORED_FIELDS.has(field)) raw.push(line);
    // The LF of a CRLF reads as an empty line here, and empty lines say nothing.
    start = end + 1;
  }
  return { data: data.length === 0 ? null : data.join("\n"), raw: raw.length === 0 ? null : raw.join("\n") };
}

/** Empty is both the blank line and the field of a comment. */
const IGNORED_FIELDS: ReadonlySet<string> = new Set(["", "event", "id", "retry"]);

function valueAfter(line: string, colon: number): string {
  return line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
}
