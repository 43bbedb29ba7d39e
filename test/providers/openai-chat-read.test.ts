/** What OpenAI chat answers say, event by event. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { openaiChat } from "../../src/providers/openai-chat.ts";

/** One seed, so that a failure comes again. */
fc.configureGlobal({ seed: 20_260_101 });

describe("reading answers", () => {
  const usage = (members: object) =>
    openaiChat.readEvent(JSON.stringify({ choices: [], usage: members })).usage;

  it("STR-01: the usage chunk without choices is read, and known for what it is", () => {
    const stop = openaiChat.readEvent('{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}');
    expect(stop).toEqual({
      usage: null,
      text: "",
      answerId: null,
      finishedChoices: 1,
      error: false,
      usageOnly: false,
      malformed: false,
    });
    const last = openaiChat.readEvent(
      '{"choices":[],"usage":{"prompt_tokens":26,"completion_tokens":9,"total_tokens":35}}',
    );
    expect(last).toMatchObject({ usage: { inputTokens: 26, outputTokens: 9 }, usageOnly: true });
    expect(openaiChat.readEvent("[DONE]")).toEqual({ ...stop, finishedChoices: 0 });
  });

  it("STR-02: usage beside choices is read, and is not the usage chunk alone", () => {
    const reading = openaiChat.readEvent(
      '{"choices":[{"index":0,"delta":{}}],"usage":{"prompt_tokens":65,"completion_tokens":251,"total_tokens":316,"prompt_tokens_details":{"cached_tokens":64}}}',
    );
    expect(reading).toMatchObject({
      usage: { inputTokens: 65, outputTokens: 251, cachedInputTokens: 64 },
      usageOnly: false,
    });
  });

  it("STR-03: a later chunk without usage says null, not zero", () => {
    expect(openaiChat.readEvent('{"choices":[],"usage":null}')).toMatchObject({
      usage: null,
      usageOnly: false,
      malformed: false,
    });
  });

  it("STR-04: continuous usage is each chunk's running total", () => {
    const totals = [1, 2, 3].map((completion) =>
      usage({ prompt_tokens: 6000, completion_tokens: completion }),
    );
    expect(totals.at(-1)).toMatchObject({ inputTokens: 6000, outputTokens: 3 });
  });

  it("STR-33: usage null in every chunk leaves the text to be counted", () => {
    const reading = openaiChat.readEvent('{"choices":[{"delta":{"content":"hello"}}],"usage":null}');
    expect(reading).toEqual({
      usage: null,
      text: "hello",
      answerId: null,
      finishedChoices: 0,
      error: false,
      usageOnly: false,
      malformed: false,
    });
  });

  it("TOK-12: the audio detail is inside prompt_tokens", () => {
    expect(
      usage({ prompt_tokens: 152, completion_tokens: 1, prompt_tokens_details: { audio_tokens: 140 } })
        ?.inputTokens,
    ).toBe(152);
  });

  it("TOK-20: reasoning is inside the completion and is not added again", () => {
    const details = { completion_tokens_details: { reasoning_tokens: 261 } };
    expect(usage({ prompt_tokens: 2008, completion_tokens: 266, total_tokens: 2274, ...details })).toEqual({
      inputTokens: 2008,
      outputTokens: 266,
      cachedInputTokens: 0,
      cacheWriteTokens: 0,
      reasoningTokens: 261,
    });
  });

  it("TOK-22: a total above the sum is what counts", () => {
    const details = { completion_tokens_details: { reasoning_tokens: 60 } };
    expect(usage({ prompt_tokens: 21, completion_tokens: 0, total_tokens: 81, ...details })).toMatchObject({
      inputTokens: 21,
      outputTokens: 60,
      reasoningTokens: 60,
    });
  });

  it("TOK-25: usage that cannot be true is ignored", () => {
    expect(usage({ prompt_tokens: -1_000_000, completion_tokens: -1, total_tokens: -1_000_001 })).toBeNull();
    for (const wrong of ["12", 1e20, "NaN", 1.5, -1, true]) {
      expect(usage({ prompt_tokens: wrong, completion_tokens: 1 })).toBeNull();
      expect(usage({ prompt_tokens: 1, completion_tokens: wrong })).toBeNull();
      expect(usage({ prompt_tokens: 1, completion_tokens: 1, total_tokens: wrong })).toBeNull();
    }
    expect(usage({ prompt_tokens: null, completion_tokens: null })).toBeNull();
    expect(usage({})).toBeNull();
  });

  it("text is everything that the model wrote, in all choices", () => {
    const delta = {
      content: "a",
      refusal: "b",
      reasoning_content: "c",
      reasoning: "c",
      tool_calls: [{ function: { name: "d", arguments: "{}" } }],
    };
    const { text } = openaiChat.readEvent(
      JSON.stringify({
        choices: [{ delta }, { text: "e" }, { delta: { function_call: { arguments: "f" } } }],
      }),
    );
    expect([...text].toSorted().join("")).toBe("abcdef{}");
    const message = { content: "whole answer", tool_calls: null };
    expect(openaiChat.readBody(JSON.stringify({ choices: [{ message }] })).text).toBe("whole answer");
  });

  it("an error inside a 200 is seen, and is never taken for the usage chunk", () => {
    expect(openaiChat.readEvent('{"error":{"message":"boom"}}').error).toBe(true);
    expect(openaiChat.readEvent('{"error":null,"choices":[]}').error).toBe(false);
    expect(openaiChat.readEvent('{"error":{},"choices":[],"usage":{}}').usageOnly).toBe(false);
  });

  it("STR-17: what cannot be read is counted as malformed and never thrown", () => {
    for (const data of ['{"id":"x","ch', "7", "[]", "oops"])
      expect(openaiChat.readEvent(data).malformed).toBe(true);
    expect(openaiChat.readEvent("").malformed).toBe(false);
    expect(openaiChat.readEvent('{"choices":\n[]}').malformed).toBe(false);
    fc.assert(
      fc.property(fc.jsonValue(), fc.jsonValue(), (choices, value) => {
        openaiChat.readEvent(JSON.stringify({ choices, usage: value, error: value }));
        openaiChat.readEvent(JSON.stringify({ choices: [{ delta: value, message: value }], usage: value }));
      }),
    );
  });
});
