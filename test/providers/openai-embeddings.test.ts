/** Embeddings: all input, no output, and an answer that is megabytes of numbers. */
import { describe, expect, it } from "vitest";
import { openaiEmbeddings } from "../../src/providers/openai-embeddings.ts";
import type { Counter } from "../../src/tokens/counter.ts";
import { loadCounter } from "../../src/tokens/encodings.ts";
import { describedAt, problemAt } from "../support/described.ts";

const PATH = "/v1/embeddings";
const MODEL = "text-embedding-3-small";
const counter = await loadCounter("cl100k_base", "policy");
const body = (input: unknown, model = MODEL) => ({ model, input });
const TERMS = { images: "openai-gpt-4o", unseenInputTokens: 0 } as const;
const count = (input: unknown, model = MODEL, by: Counter = counter) =>
  openaiEmbeddings.countInput(describedAt(PATH, body(input, model)).request, by, TERMS);

describe("a request", () => {
  it("TOK-13 token ids cost their number, strings their tokens, and the encoder is not asked for ids", () => {
    const asked = { texts: 0 };
    const watching: Counter = {
      ...counter,
      count(text, budget) {
        asked.texts += 1;
        return counter.count(text, budget);
      },
    };
    expect(count([1212, 318, 257, 1332], MODEL, watching).inputTokens).toBe(4);
    expect(count([[1212, 318], [257]], MODEL, watching).inputTokens).toBe(3);
    expect(asked.texts).toBe(0);
    const texts = ["How wide is the river?", "And how deep?"];
    const sum = texts.reduce((total, text) => total + counter.count(text).tokens, 0);
    expect(count(texts, MODEL, watching).inputTokens).toBe(sum);
    expect(count(texts[0]).inputTokens).toBe(counter.count(texts[0] ?? "").tokens);
    const { declaredOutputTokens, completions, stream } = describedAt(PATH, body("hi")).request;
    expect({ declaredOutputTokens, completions, stream }).toEqual({
      declaredOutputTokens: 0,
      completions: 1,
      stream: false,
    });
  });

  it("is never edited", () => {
    const { request } = describedAt(PATH, body("hi"));
    const edits = { maxOutputTokens: 5, injectCeilingAs: "max_tokens", includeUsage: true };
    expect(openaiEmbeddings.edit(request, edits).text).toBe(request.text);
  });

  it("TOK-14 what is past the provider's own bounds is known to be, of its own models", () => {
    const ids = Array.from({ length: 150 }, (_, i) => i);
    const batch = Array.from({ length: 2_048 }, () => ids);
    expect(count(batch).excess).toEqual({
      param: "input",
      what: "tokens",
      requested: 307_200,
      available: 300_000,
    });
    expect(count(Array.from({ length: 2_049 }, () => "a")).excess).toMatchObject({ available: 2_048 });
    expect(count([Array.from({ length: 8_193 }, () => 1)]).excess).toMatchObject({
      param: "input[0]",
      available: 8_192,
    });
    expect(count(batch, "bge-m3").excess).toBeUndefined();
    expect(count(Array.from({ length: 2_048 }, () => "a")).excess).toBeUndefined();
  });

  it.each([
    [7, "input"],
    ["", null],
    [[], "input"],
    [["a", 1], "input[1]"],
    [[1, "a"], "input[1]"],
    [[1.5], "input[0]"],
    [[-1], "input[0]"],
    [[[1], []], "input[1]"],
    [[[1], ["a"]], "input[1][0]"],
    [[{}], "input[0]"],
    [null, "input"],
  ])("TOK-29 input %j is judged by its place", (input, param) => {
    const problem = problemAt(PATH, body(input));
    if (param === null) expect(problem).toBeNull();
    else expect(problem).toMatchObject({ param });
  });
});

describe("an answer", () => {
  const vectors = {
    object: "list",
    data: [{ object: "embedding", index: 0, embedding: [0.1, -0.2] }],
    model: MODEL,
  };
  const read = (answer: object) => openaiEmbeddings.readBody(JSON.stringify(answer));

  it("tells its usage behind the vectors or before them", () => {
    const usage = { prompt_tokens: 8, total_tokens: 8 };
    for (const answer of [
      { ...vectors, usage },
      { usage, ...vectors },
    ])
      expect(read(answer).usage).toMatchObject({ inputTokens: 8, outputTokens: 0 });
    expect(read({ ...vectors, usage: { total_tokens: 8 } }).usage).toMatchObject({ inputTokens: 8 });
    expect(read(vectors).usage).toBeNull();
    expect(read({ ...vectors, usage: { prompt_tokens: -8, total_tokens: 8 } })).toMatchObject({
      usage: null,
      malformed: true,
    });
  });

  it("is read from its two ends alone", () => {
    const tail = `0.25]}],"model":"${MODEL}","usage":{"prompt_tokens":8,"total_tokens":8}}`;
    expect(openaiEmbeddings.readBody(tail).usage).toMatchObject({ inputTokens: 8 });
    expect(openaiEmbeddings.readBody('{"error":{"message":"x"}}')).toMatchObject({
      usage: null,
      error: true,
    });
    expect(openaiEmbeddings.readBody("<html>").malformed).toBe(true);
  });
});
