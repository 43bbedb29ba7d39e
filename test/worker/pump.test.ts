import { describe, expect, it } from "vitest";
import { ProviderTimeout } from "../../src/gateway/dispatch.ts";
import { SecretMask } from "../../src/gateway/mask.ts";
import { Meter } from "../../src/gateway/meter.ts";
import { pump } from "../../src/gateway/pump.ts";
import { tapFor } from "../../src/gateway/tap.ts";
import { openaiChat } from "../../src/providers/openai-chat.ts";
import type { Counter } from "../../src/tokens/counter.ts";

const encoder = new TextEncoder();
const perCharacter: Counter = {
  encoding: "o200k_base",
  digest: "",
  count: (text) => ({ tokens: text.length, bounded: false }),
  running: () => ({
    tokens: 0,
    push(text) {
      Object.assign(this, { tokens: this.tokens + text.length });
    },
  }),
};
const meter = () => new Meter(openaiChat, perCharacter, 100, 1);

const EVENT = 'data: {"choices":[{"index":0,"delta":{"content":"ab"}}]}\n\n';
const UNARY =
  '{"choices":[{"message":{"content":"ab"}}],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}';

const bodyOf = (...pieces: string[]) =>
  new ReadableStream<Uint8Array>({
    start(controller) {
      for (const piece of pieces) controller.enqueue(encoder.encode(piece));
      controller.close();
    },
  });

function carry(
  body: ReadableStream<Uint8Array>,
  writable: WritableStream<Uint8Array>,
  type: string,
  on: Meter,
) {
  const abort = new AbortController();
  const carried = pump({
    body,
    writable,
    tap: tapFor(type, on, { stream: true, stripUsage: false, free: false }),
    mask: new SecretMask("sk-secret"),
    finished: () => on.finished,
    abort,
    idleTimeoutMs: 60,
    onProgress: () => {},
    onCallerGone: () => {},
  });
  return { abort, carried };
}

describe("pump", () => {
  it("does not take a caller who reads slowly for a provider who is silent", async () => {
    const slow = new WritableStream<Uint8Array>({
      write: () => new Promise((resolve) => setTimeout(resolve, 150)),
    });
    const read = meter();
    const { carried, abort } = carry(bodyOf(EVENT, EVENT), slow, "text/event-stream", read);
    expect(await carried).toBe("complete");
    expect(abort.signal.aborted).toBe(false);
    expect(read.soFar.outputTokens).toBe(4);
  });

  it("PLA-19 breaks off a provider who is silent for longer than allowed, and keeps what was seen", async () => {
    let controller: ReadableStreamDefaultController<Uint8Array> | null = null;
    const body = new ReadableStream<Uint8Array>({
      start(given) {
        controller = given;
        given.enqueue(encoder.encode(EVENT));
      },
    });
    const read = meter();
    const { carried, abort } = carry(body, new WritableStream(), "text/event-stream", read);
    abort.signal.addEventListener("abort", () => controller?.error(abort.signal.reason));
    expect(await carried).toBe("cut");
    expect(abort.signal.reason).toBeInstanceOf(ProviderTimeout);
    expect(read.soFar).toMatchObject({ inputTokens: 100, outputTokens: 2 });
  });

  it("PLA-16 stops a stream whose caller has gone", async () => {
    const gone = new WritableStream<Uint8Array>({ write: () => Promise.reject(new Error("gone")) });
    const { carried, abort } = carry(bodyOf(EVENT, EVENT, EVENT), gone, "text/event-stream", meter());
    expect(await carried).toBe("cut");
    expect(abort.signal.aborted).toBe(true);
  });

  it("SET-07 reads a unary answer to its end for a caller who has gone", async () => {
    const gone = new WritableStream<Uint8Array>({ write: () => Promise.reject(new Error("gone")) });
    const read = meter();
    const { carried, abort } = carry(
      bodyOf(UNARY.slice(0, 20), UNARY.slice(20)),
      gone,
      "application/json",
      read,
    );
    expect(await carried).toBe("complete");
    expect(abort.signal.aborted).toBe(false);
    expect(read.reported).toMatchObject({ inputTokens: 7, outputTokens: 2 });
  });

  it("SET-17 counts what came of a unary answer that the provider cut", async () => {
    let pulls = 0;
    const body = new ReadableStream<Uint8Array>({
      pull(controller) {
        pulls += 1;
        if (pulls === 1) controller.enqueue(encoder.encode(UNARY.slice(0, 30)));
        else controller.error(new Error("reset"));
      },
    });
    const read = meter();
    const { carried } = carry(body, new WritableStream(), "application/json", read);
    expect(await carried).toBe("cut");
    expect(read.reported).toBeNull();
    expect(read.soFar.outputTokens).toBe(30);
  });
});
