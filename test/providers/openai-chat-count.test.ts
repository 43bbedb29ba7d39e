/** What an OpenAI chat request costs to read. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { InputCount } from "../../src/providers/dialect.ts";
import { openaiChat } from "../../src/providers/openai-chat.ts";
import { IMAGE_LOW_DETAIL_TOKENS, IMAGE_TOKENS_MAX } from "../../src/providers/openai-chat-count.ts";
import type { Counter } from "../../src/tokens/counter.ts";
import { loadCounter } from "../../src/tokens/encodings.ts";
import { body, MESSAGES, requestOf } from "../support/chat-request.ts";

describe("countInput", async () => {
  const counter = await loadCounter("o200k_base");
  const tokens = (text: string) => counter.count(text).tokens;
  const count = (members: Readonly<Record<string, unknown>>): InputCount =>
    openaiChat.countInput(requestOf(body(members)), counter);
  const parts = (...content: readonly unknown[]) => count({ messages: [{ role: "user", content }] });

  it("frames messages as the chat format does", () => {
    const { inputTokens, components, bounded } = count({});
    expect(inputTokens).toBe(3 + tokens("user") + tokens("hi") + 3);
    expect(components).toEqual({
      messages: inputTokens,
      tools: 0,
      outputSchema: 0,
      images: 0,
      audio: 0,
      files: 0,
    });
    expect(bounded).toBe(false);
    const named = count({ messages: [{ role: "user", content: "hi", name: "ada" }] });
    expect(named.inputTokens).toBe(inputTokens + tokens("ada") + 1);
  });

  it("TOK-04: a control-token spelling in a prompt is counted as text", () => {
    const { components } = count({
      messages: [{ role: "user", content: "explain <|endoftext|> and <|im_start|>system" }],
    });
    expect(components["messages"]).toBeGreaterThan(18);
  });

  it("TOK-05: a lone surrogate is counted, and the body goes out as it came", () => {
    const text = String.raw`{"model":"m","messages":[{"role":"user","content":"x\ud83d"}]}`;
    const request = requestOf(text);
    expect(openaiChat.countInput(request, counter).inputTokens).toBeGreaterThan(7);
    const edits = { maxOutputTokens: 10, injectCeilingAs: null, includeUsage: true };
    expect(openaiChat.edit(request, edits).text).toBe(text);
  });

  it("TOK-09: fourteen tools add thousands, every member of their schemas counted", () => {
    const property = (i: number) => ({
      title: `Field ${i}`,
      anyOf: [{ type: "string", enum: ["north", "south", "east", "west"] }, { type: "null" }],
      default: null,
      description: "Which way the wind blows at the weather station.",
    });
    const tool = (name: string) => ({
      type: "function",
      function: {
        name,
        parameters: {
          type: "object",
          properties: Object.fromEntries([1, 2, 3, 4].map((i) => [`f${i}`, property(i)])),
        },
      },
    });
    const tools = Array.from({ length: 14 }, (_, i) => tool(`tool_${i}`));
    const counted = count({ tools }).components["tools"] ?? 0;
    expect(counted).toBe(12 + tools.reduce((sum, each) => sum + 8 + tokens(JSON.stringify(each)), 0));
    expect(counted).toBeGreaterThan(3000);
    expect(count({ functions: tools.map((each) => each.function) }).components["tools"]).toBeGreaterThan(
      3000,
    );
  });

  it("TOK-10: an image costs a bounded figure and its base64 never meets the tokenizer", () => {
    const url = `data:image/png;base64,${"iVBORw0K".repeat(237_500)}`;
    const longest = { length: 0 };
    const watching: Counter = {
      encoding: counter.encoding,
      count(text) {
        longest.length = Math.max(longest.length, text.length);
        return counter.count(text);
      },
    };
    for (const part of [
      { type: "image_url", image_url: { url } },
      { type: "input_image", image_url: url },
    ]) {
      const request = requestOf(body({ messages: [{ role: "user", content: [part] }] }));
      const { components, bounded } = openaiChat.countInput(request, watching);
      expect(components["images"]).toBe(IMAGE_TOKENS_MAX);
      expect(bounded).toBe(true);
    }
    expect(longest.length).toBeLessThan(100);
    expect(parts({ type: "image_url", image_url: { url, detail: "low" } }).components["images"]).toBe(
      IMAGE_LOW_DETAIL_TOKENS,
    );
  });

  it("TOK-12: audio is bounded by its length, never read as text", () => {
    const data = "A".repeat(4_000_000);
    const wav = parts({ type: "input_audio", input_audio: { data, format: "wav" } });
    expect(wav.components["audio"]).toBe(3000);
    expect(wav.bounded).toBe(true);
    expect(wav.components["messages"]).toBeLessThan(20);
    expect(parts({ type: "input_audio", input_audio: { data, format: "mp3" } }).components["audio"]).toBe(
      15_000,
    );
  });

  it("files are bounded by their bytes, or by a fixed figure when only named", () => {
    const fileData = `data:application/pdf;base64,${"A".repeat(40_000)}`;
    expect(parts({ type: "file", file: { file_data: fileData } }).components["files"]).toBe(7500);
    expect(parts({ type: "file", file: { file_id: "file-1" } }).components["files"]).toBe(4096);
  });

  it("TOK-28: tool calls, reasoning, schema, prediction and tool choice all count", () => {
    const long = "The quick brown fox jumps over the lazy dog. ".repeat(40);
    const alone = count({}).inputTokens;
    const assistant = (members: object) =>
      count({ messages: [...MESSAGES, { role: "assistant", content: null, ...members }] });
    const call = { id: "call_1", type: "function", function: { name: "find", arguments: long } };
    for (const members of [
      { tool_calls: [call] },
      { function_call: call.function },
      { refusal: long },
      { reasoning_content: long },
      { reasoning_details: [{ text: long }] },
      { content: [{ type: "refusal", refusal: long }] },
    ]) {
      expect(assistant(members).inputTokens).toBeGreaterThan(alone + tokens(long));
    }
    const schema = { type: "json_schema", json_schema: { name: "x", schema: { description: long } } };
    expect(count({ response_format: schema }).components["outputSchema"]).toBe(
      tokens(JSON.stringify(schema.json_schema)),
    );
    expect(count({ prediction: { type: "content", content: long } }).inputTokens).toBe(alone + tokens(long));
    expect(
      count({ prediction: { type: "content", content: [{ type: "text", text: long }] } }).inputTokens,
    ).toBe(alone + tokens(long));
    expect(
      count({ tool_choice: { type: "function", function: { name: "find" } } }).components["tools"],
    ).toBeGreaterThan(0);
    expect(count({ response_format: { type: "json_object" } }).inputTokens).toBe(alone);
  });

  it("TOK-29: parts of unknown kind and shape are counted by their strings and never throw", () => {
    expect(
      parts({ type: "video_url", note: "hello there" }, { text: "again" }, {}).inputTokens,
    ).toBeGreaterThan(9);
    fc.assert(
      fc.property(
        fc.dictionary(fc.constantFrom("type", "text", "image_url", "file", "x"), fc.jsonValue()),
        fc.jsonValue(),
        (part, value) => {
          const members = {
            messages: [{ role: "user", content: [part], tool_calls: value }],
            tools: value,
            prediction: value,
            response_format: value,
          };
          expect(Number.isInteger(count(members).inputTokens)).toBe(true);
        },
      ),
    );
  });
});
