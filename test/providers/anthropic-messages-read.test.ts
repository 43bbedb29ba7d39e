/** What Anthropic's answers say of usage, event by event. */
import { describe, expect, it } from "vitest";
import { anthropicMessages } from "../../src/providers/anthropic-messages.ts";
import type { Usage, UsageReport } from "../../src/providers/dialect.ts";
import { mergeUsage, wholeUsage } from "../../src/providers/usage.ts";

const read = (event: object) => anthropicMessages.readEvent(JSON.stringify(event));
const start = (usage: object) => ({
  type: "message_start",
  message: { id: "msg_1", type: "message", content: [], usage },
});
const delta = (usage: object, stop: string | null = "end_turn") => ({
  type: "message_delta",
  delta: { stop_reason: stop },
  usage,
});

function usageAfter(...events: readonly object[]): Usage | null {
  let report: UsageReport | null = null;
  for (const event of events) {
    const { usage } = read(event);
    if (usage !== null) report = mergeUsage(report ?? {}, usage);
  }
  return wholeUsage(report);
}

describe("usage of a stream", () => {
  it("STR-06 takes repeated input once: cache reads and writes stand beside it", () => {
    const cache = { cache_read_input_tokens: 900, cache_creation_input_tokens: 0 };
    expect(
      usageAfter(
        start({ input_tokens: 27, ...cache, output_tokens: 1 }),
        delta({ input_tokens: 27, ...cache, output_tokens: 47 }),
      ),
    ).toEqual({
      inputTokens: 927,
      outputTokens: 47,
      cachedInputTokens: 900,
      cacheWriteTokens: 0,
      reasoningTokens: 0,
    });
  });

  it("STR-07 keeps the input that only the start told", () => {
    const after = usageAfter(start({ input_tokens: 5_000, output_tokens: 1 }), delta({ output_tokens: 20 }));
    expect(after).toMatchObject({ inputTokens: 5_000, outputTokens: 20 });
  });

  it("keeps cached parts that only the start told, beside an input that is told again", () => {
    const usage = {
      input_tokens: 27,
      cache_read_input_tokens: 900,
      cache_creation_input_tokens: 50,
      output_tokens: 1,
    };
    expect(usageAfter(start(usage), delta({ input_tokens: 30, output_tokens: 2 }))).toMatchObject({
      inputTokens: 980,
      cachedInputTokens: 900,
      cacheWriteTokens: 50,
    });
  });

  it("STR-09 replaces a running total by the next", () => {
    expect(
      usageAfter(
        start({ input_tokens: 5, output_tokens: 1 }),
        delta({ output_tokens: 15 }, null),
        delta({ output_tokens: 27 }),
      ),
    ).toMatchObject({ inputTokens: 5, outputTokens: 27 });
  });

  it("TOK-20 has thoughts inside the output", () => {
    const usage = { input_tokens: 5, output_tokens: 266, output_tokens_details: { thinking_tokens: 261 } };
    expect(usageAfter(start(usage))).toMatchObject({ outputTokens: 266, reasoningTokens: 261 });
  });

  it.each([
    [{ input_tokens: -1, output_tokens: 5 }],
    [{ input_tokens: 1.5, output_tokens: 5 }],
    [{ input_tokens: 5, output_tokens: "5" }],
    [{ input_tokens: 5, output_tokens: 5, cache_read_input_tokens: 1e12 }],
    [{}],
  ])("takes %j for no usage", (usage) => {
    expect(read(delta(usage)).usage).toBeNull();
  });

  it("is whole only when both halves are known", () => {
    expect(usageAfter(delta({ output_tokens: 20 }))).toBeNull();
    expect(usageAfter()).toBeNull();
  });
});

describe("output of a stream", () => {
  it.each([
    [{ type: "content_block_delta", delta: { type: "text_delta", text: "a" } }, "a"],
    [{ type: "content_block_delta", delta: { type: "thinking_delta", thinking: "b" } }, "b"],
    [{ type: "content_block_delta", delta: { type: "input_json_delta", partial_json: '{"c' } }, '{"c'],
    [{ type: "content_block_delta", delta: { type: "signature_delta", signature: "zzz" } }, ""],
    [
      { type: "content_block_start", content_block: { type: "tool_use", id: "t", name: "width", input: {} } },
      "width",
    ],
    [{ type: "content_block_start", content_block: { type: "text", text: "" } }, ""],
    [{ type: "ping" }, ""],
    [{ type: "message_stop" }, ""],
    [{ type: "of tomorrow", text: "x" }, ""],
  ])("of %j is %j", (event, text) => {
    expect(read(event)).toMatchObject({
      text,
      usage: null,
      error: false,
      malformed: false,
      finishedChoices: 0,
    });
  });

  it("names the answer, and says when it has ended", () => {
    expect(read(start({ input_tokens: 1, output_tokens: 1 })).answerId).toBe("msg_1");
    expect(read(delta({ output_tokens: 2 })).finishedChoices).toBe(1);
    expect(read(delta({ output_tokens: 2 }, null)).finishedChoices).toBe(0);
  });

  it("sees an error inside a 200, and what cannot be read", () => {
    expect(read({ type: "error", error: { type: "overloaded_error", message: "Overloaded" } }).error).toBe(
      true,
    );
    expect(anthropicMessages.readEvent("{").malformed).toBe(true);
    expect(anthropicMessages.readEvent("[]").malformed).toBe(true);
    expect(anthropicMessages.readEvent("").malformed).toBe(false);
    const glued = `${JSON.stringify(start({ input_tokens: 1, output_tokens: 1 }))}\n{`;
    expect(anthropicMessages.readEvent(glued)).toMatchObject({ usage: { inputTokens: 1 }, malformed: true });
  });
});

describe("a unary answer", () => {
  it("says all of it at once", () => {
    const body = JSON.stringify({
      id: "msg_2",
      type: "message",
      content: [
        { type: "thinking", thinking: "hm", signature: "zzz" },
        { type: "text", text: "wide" },
        { type: "tool_use", id: "t", name: "width", input: { river: "Elbe" } },
      ],
      stop_reason: "tool_use",
      usage: { input_tokens: 7, output_tokens: 9 },
    });
    expect(anthropicMessages.readBody(body)).toMatchObject({
      answerId: "msg_2",
      text: 'hmwidewidth{"river":"Elbe"}',
      finishedChoices: 1,
      usage: { inputTokens: 7, outputTokens: 9 },
      error: false,
    });
    expect(
      anthropicMessages.readBody('{"type":"error","error":{"type":"api_error","message":"x"}}').error,
    ).toBe(true);
    expect(anthropicMessages.readBody("<html>").malformed).toBe(true);
  });
});
