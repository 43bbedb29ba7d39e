/** Framing: whole events whatever the cut, not a byte changed, memory bounded. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type SseFrame, SseFramer } from "../../src/gateway/sse.ts";
import { openaiChat } from "../../src/providers/openai-chat.ts";

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: false, ignoreBOM: true });

const USAGE = '{"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":2,"total_tokens":4}}';

/** Frames of the chunks, the flush included. */
function framesOf(chunks: readonly Uint8Array[], eventBytesMax?: number): SseFrame[] {
  const framer = new SseFramer(eventBytesMax);
  const pushed = chunks.flatMap((chunk) => framer.push(chunk));
  const last = framer.flush();
  return last === null ? pushed : [...pushed, last];
}

function frames(text: string): SseFrame[] {
  return framesOf([encoder.encode(text)]);
}

function dataOf(found: readonly SseFrame[]): string[] {
  return found.flatMap((frame) => frame.data ?? []);
}

function joined(found: readonly SseFrame[]): string {
  return decoder.decode(Uint8Array.from(found.flatMap((frame) => [...frame.bytes])));
}

/** Cut after each of the given places. */
function cutAt(bytes: Uint8Array, places: readonly number[]): Uint8Array[] {
  const edges = [0, ...places.toSorted((a, b) => a - b), bytes.length];
  return edges.slice(1).map((edge, index) => bytes.slice(edges[index], edge));
}

const STREAMS: Readonly<Record<string, string>> = {
  lf: `data: {"a":"北京😀"}\n\n: ping - 2\n\nevent: x\nid: 1\ndata: one\ndata: two\n\ndata: [DONE]\n\n`,
  crlf: `data: {"a":"北京😀"}\r\n\r\n: ping\r\n\r\nevent: x\r\ndata: one\r\ndata: two\r\n\r\ndata: [DONE]\r\n\r\n`,
  cr: `data: {"a":"北京😀"}\r\r: ping\r\revent: x\rdata: one\rdata: two\r\rdata: [DONE]\r\r`,
  mixed: `\ufeffdata:one\r\n\ndata: two\n\r\n\r\rdata\n\nretry: 5\r\r\n\n\ndata:  three: four\n\n`,
  unfinished: `data: a\n\ndata: ${USAGE}`,
  bare: 'data: a\n\n{"error":{"message":"boom","code":500}}',
};

describe("whatever the cut", () => {
  it.each(Object.entries(STREAMS))("STR-10: %s, cut at every byte boundary, frames alike", (_, text) => {
    const bytes = encoder.encode(text);
    const whole = framesOf([bytes]);
    expect(joined(whole)).toBe(text);
    for (let place = 1; place < bytes.length; place++) {
      expect(framesOf(cutAt(bytes, [place]))).toEqual(whole);
    }
    expect(framesOf([...bytes].map((byte) => Uint8Array.of(byte)))).toEqual(whole);
  });

  it("any bytes in any chunks come out as they went in, and frame alike", () => {
    const alphabet = fc.constantFrom(
      "data: x",
      "data",
      ":",
      "\n",
      "\r",
      "\r\n",
      "\n\n",
      "日",
      "😀",
      "{",
      "event: e",
    );
    const streams = fc.array(alphabet, { maxLength: 60 }).map((parts) => encoder.encode(parts.join("")));
    fc.assert(
      fc.property(
        streams,
        fc.array(fc.nat({ max: 300 }), { maxLength: 8 }),
        fc.constantFrom(8, 40, 2 ** 20),
        (bytes, cuts, most) => {
          const places = cuts.map((cut) => Math.min(cut, bytes.length));
          const found = framesOf(cutAt(bytes, places), most);
          expect(Uint8Array.from(found.flatMap((frame) => [...frame.bytes]))).toEqual(bytes);
          expect(found.every((frame) => frame.bytes.length > 0)).toBe(true);
          expect(dataOf(found)).toEqual(dataOf(framesOf([bytes], most)));
          if (most > 300) expect(found).toEqual(framesOf([bytes]));
        },
      ),
      { numRuns: 500 },
    );
  });

  it("STR-10: a character cut between two reads is whole again", () => {
    for (const character of ["北", "😀"]) {
      const text = `data: {"choices":[{"delta":{"content":"${character}"}}]}\n\n`;
      const bytes = encoder.encode(text);
      const at = encoder.encode(text.slice(0, text.indexOf(character))).length;
      for (let inner = at + 1; inner < at + encoder.encode(character).length; inner++) {
        const [data] = dataOf(framesOf(cutAt(bytes, [inner])));
        expect(openaiChat.readEvent(data ?? "").text).toBe(character);
      }
    }
  });
});

describe("fields", () => {
  it("STR-15: comments flow and say nothing", () => {
    const text =
      ': ping - 2\n\ndata: {"choices":[{"delta":{"content":"a"}}]}\n\n: OPENROUTER PROCESSING\n\ndata: [DONE]\n\n';
    const found = frames(text);
    expect(found.map((frame) => frame.data)).toEqual([
      null,
      '{"choices":[{"delta":{"content":"a"}}]}',
      null,
      "[DONE]",
    ]);
    expect(found.every((frame) => frame.raw === null)).toBe(true);
    expect(joined(found)).toBe(text);
  });

  it("STR-16: only the first colon parts field from value", () => {
    const data =
      '{"choices":[{"delta":{"content":"key: [1]"}}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}';
    expect(dataOf(frames(`data: ${data}\n\n`))).toEqual([data]);
    expect(openaiChat.readEvent(data).usage).toMatchObject({ inputTokens: 3, outputTokens: 1 });
  });

  it("takes one space after the colon and no more, and needs none", () => {
    expect(dataOf(frames("data:x\n\ndata:  y\n\ndata\n\ndatabase: z\n\n"))).toEqual(["x", " y", ""]);
  });

  it("drops a leading byte order mark from what is read, not from what flows", () => {
    const found = frames("\ufeffdata: x\n\n\ufeffdata: y\n\n");
    expect(dataOf(found)).toEqual(["x"]);
    expect(joined(found)).toBe("\ufeffdata: x\n\n\ufeffdata: y\n\n");
  });

  it("joins data lines with line feeds", () => {
    expect(dataOf(frames("data: a\r\nid: 7\r\ndata: b\r\n\r\n"))).toEqual(["a\nb"]);
  });
});

describe("the end of the stream", () => {
  it("STR-18: a last event without its blank line is read", () => {
    const found = frames(`data: a\n\ndata: ${USAGE}`);
    expect(dataOf(found)).toEqual(["a", USAGE]);
    expect(openaiChat.readEvent(found[1]?.data ?? "").usage).toMatchObject({
      inputTokens: 2,
      outputTokens: 2,
    });
  });

  it("STR-18: a bare JSON error body is handed over as raw text", () => {
    const found = frames('data: a\n\n{"error":{"message":"boom","code":500}}');
    expect(found[1]).toMatchObject({ data: null, raw: '{"error":{"message":"boom","code":500}}' });
    expect(openaiChat.readBody(found[1]?.raw ?? "").error).toBe(true);
  });

  it("STR-18: an indented error body, or one right after a data line, is whole", () => {
    const body = JSON.stringify({ error: { message: "boom" } }, null, 2);
    for (const text of [body, `data: a\n${body}`, `${body}\n\n`]) {
      expect(openaiChat.readBody(frames(text)[0]?.raw ?? "").error).toBe(true);
    }
  });

  it("has nothing to flush after a whole event", () => {
    const framer = new SseFramer();
    framer.push(encoder.encode("data: x\n\n"));
    expect(framer.flush()).toBeNull();
    expect(new SseFramer().flush()).toBeNull();
  });
});

describe("dropping an event", () => {
  it("STR-43: removes exactly that event's bytes, its blank line included", () => {
    const kept = ["event: delta\r\nid: 1\r\ndata: a\r\n\r\n", "data: [DONE]\r\n\r\n"];
    const bytes = encoder.encode(`${kept[0]}event: usage\r\nid: 2\r\ndata: ${USAGE}\r\n\r\n${kept[1]}`);
    for (let place = 0; place <= bytes.length; place++) {
      const found = framesOf(cutAt(bytes, [place]));
      const rest = found.filter((frame) => !openaiChat.readEvent(frame.data ?? "").usageOnly);
      expect(joined(rest)).toBe(kept.join(""));
    }
  });

  it("STR-17: a broken line in an event costs neither its bytes nor the line that is whole", () => {
    const text = `data: {"id":"x","ch\ndata: ${USAGE}\n\ndata: [DONE]\n\n`;
    const found = frames(text);
    const reading = openaiChat.readEvent(found[0]?.data ?? "");
    expect(reading).toMatchObject({
      usage: { inputTokens: 2, outputTokens: 2 },
      malformed: true,
      usageOnly: false,
    });
    expect(joined(found)).toBe(text);
  });
});

describe("STR-41: events too long to hold", () => {
  it("flow in pieces, unread, and what follows is read", () => {
    const framer = new SseFramer(1000);
    const piece = encoder.encode("x".repeat(400));
    const found = [...framer.push(encoder.encode("data: "))];
    for (let i = 0; i < 10; i++) found.push(...framer.push(piece));
    expect(found.length).toBeGreaterThan(5);
    found.push(
      ...framer.push(encoder.encode(`\r\n\r`)),
      ...framer.push(encoder.encode(`\ndata: ${USAGE}\n\n`)),
    );
    expect(dataOf(found)).toEqual([USAGE]);
    expect(found.filter((frame) => frame.oversize).every((frame) => frame.data === null)).toBe(true);
    expect(joined(found)).toBe(`data: ${"x".repeat(4000)}\r\n\r\ndata: ${USAGE}\n\n`);
  });

  it("64 MB without a line feed hold back no more than the limit", () => {
    const framer = new SseFramer();
    const chunk = new Uint8Array(64 * 1024).fill(0x78);
    let flowed = 0;
    let sent = 0;
    for (let i = 0; i < 1024; i++) {
      sent += chunk.length;
      for (const frame of framer.push(chunk)) flowed += frame.bytes.length;
      if (sent - flowed > 2 ** 20) expect.unreachable("more was held back than the limit");
    }
    expect(dataOf(framer.push(encoder.encode(`\n\ndata: ${USAGE}\n\n`)))).toEqual([USAGE]);
  });

  it("are let go alike when they come in one chunk", () => {
    const found = framesOf([encoder.encode(`data: ${"x".repeat(2000)}\n\ndata: y\n\n`)], 1000);
    expect(found.map((frame) => [frame.oversize, frame.data])).toEqual([
      [true, null],
      [false, "y"],
    ]);
  });
});

describe("memory and time", () => {
  it("an event inside one chunk shares its memory", () => {
    const chunk = encoder.encode("data: a\n\ndata: b\n\n");
    expect(new SseFramer().push(chunk).every((frame) => frame.bytes.buffer === chunk.buffer)).toBe(true);
  });

  it("what is held back is a copy, so the caller may reuse its buffer", () => {
    const framer = new SseFramer();
    const chunk = encoder.encode("data: a");
    framer.push(chunk);
    chunk.fill(0);
    expect(dataOf(framer.push(encoder.encode("b\n\n")))).toEqual(["ab"]);
  });

  it("a long event that comes a byte at a time is scanned once", () => {
    const framer = new SseFramer();
    const startedAt = performance.now();
    for (let i = 0; i < 500_000; i++) framer.push(Uint8Array.of(0x78));
    expect(performance.now() - startedAt).toBeLessThan(3000);
  });
});
