import { Tiktoken } from "js-tiktoken/lite";
import o200k from "js-tiktoken/ranks/o200k_base";
import { describe, expect, it } from "vitest";
import { Account, duration, SlidingWindow } from "./account.ts";
import { countPrompt } from "./chat.ts";
import { rounds } from "./chat-stream.ts";
import { readDirectives, splitModel } from "./directives.ts";
import { hash, logNormal, outputLength, seededRandom } from "./lengths.ts";
import { readSettings } from "./settings.ts";
import { ENGLISH, UNICODE } from "./words.ts";

describe("words and lengths", () => {
  it("counts every word as one o200k token, alone and in running text", () => {
    const tokenizer = new Tiktoken(o200k);
    for (const words of [ENGLISH, UNICODE]) {
      expect(words.filter((word) => tokenizer.encode(` ${word}`).length !== 1)).toEqual([]);
      const text = [...words, ...words.toReversed()].map((word) => ` ${word}`).join("");
      expect(tokenizer.encode(text)).toHaveLength(words.length * 2);
    }
  });

  it("draws the same numbers from the same seed", () => {
    const draw = (seed: string) => Array.from({ length: 5 }, seededRandom(hash(seed)));
    expect(draw("a")).toEqual(draw("a"));
    expect(draw("a")).not.toEqual(draw("b"));
  });

  it("draws log-normal lengths around the median, skewed to the right", () => {
    const random = seededRandom(7);
    const drawn = Array.from({ length: 20_001 }, () => logNormal(random, 60, 0.6)).toSorted((a, b) => a - b);
    const mean = drawn.reduce((sum, value) => sum + value, 0) / drawn.length;
    expect(drawn[10_000]).toBeGreaterThan(57);
    expect(drawn[10_000]).toBeLessThan(63);
    expect(mean / (60 * Math.exp(0.18))).toBeCloseTo(1, 1);
    expect(outputLength(random, 0)).toBe(1);
  });

  it("counts a prompt by bytes, messages and tools", () => {
    expect(countPrompt([{ role: "user", content: "12345" }], undefined)).toBe(2 + 4 + 3);
    expect(countPrompt([{ content: [{ type: "text", text: "水水水" }, { type: "image_url" }] }], null)).toBe(
      3 + 4 + 3,
    );
    expect(countPrompt([{ content: null }], [1, 2])).toBe(4 + 3 + 2);
  });

  it("plays choices side by side until each is done", () => {
    const choices = [2, 0].map((length, index) => ({
      index,
      words: Array.from({ length }, () => " a"),
      finishReason: "stop" as const,
    }));
    const script = rounds(choices).map((steps) =>
      steps.map((step) => [step.choice.index, step.word ?? "end"].join("")),
    );
    expect(script).toEqual([["0 a", "1end"], ["0 a"], ["0end"]]);
  });
});

describe("directives", () => {
  it("reads them behind the model name, and lets headers win", () => {
    expect(splitModel("gpt-4o?status=429&tokens=5")).toEqual({
      model: "gpt-4o",
      query: "status=429&tokens=5",
    });
    const read = readDirectives(
      "tokens=5&NODONE=1&html=0",
      new Headers({ "x-sim-tokens": "7", "x-sim-errorAfter": "2" }),
    );
    expect(read).toEqual({ counts: { tokens: 7, errorAfter: 2 }, flags: new Set(["nodone"]), texts: {} });
  });

  it("refuses what it does not know, naming what it does", () => {
    expect(readDirectives("explode=1", new Headers())).toMatchObject({ status: 400, param: "explode" });
    expect(readDirectives("", new Headers({ "x-sim-explode": "1" }))).toMatchObject({
      message: expect.stringContaining("stallHeaders"),
    });
    for (const bad of ["tokens=-1", "tokens=", "status=200", "cut=0"]) {
      expect(readDirectives(bad, new Headers())).toMatchObject({ status: 400 });
    }
  });
});

describe("account", () => {
  it("slides: what was admitted a minute ago no longer counts", () => {
    const window = new SlidingWindow(10);
    window.add(6, 0);
    window.add(4, 20_000);
    expect(window.remaining(59_999)).toBe(0);
    expect(window.waitMs(5, 30_000)).toBe(30_000);
    expect(window.waitMs(7, 30_000)).toBe(50_000);
    expect(window.waitMs(11, 30_000)).toBe(60_000);
    expect(window.resetMs(30_000)).toBe(50_000);
    expect(window.remaining(60_000)).toBe(6);
    expect(window.remaining(80_000)).toBe(10);
  });

  it("corrects downward at the end, and never after the entry has left", () => {
    const account = new Account(readSettings({ SIM_TPM: "100" }));
    const first = account.admit(80, 0);
    expect(account.admit(30, 1)).toMatchObject({ status: 429, type: "tokens", retryAfter: "60" });
    if ("status" in first) throw new Error("the first request was refused");
    first.settle(20, 2);
    expect(account.headers(0, 3)["x-ratelimit-remaining-tokens"]).toBe("80");
    first.settle(0, 60_000);
    expect(account.headers(0, 60_000)["x-ratelimit-remaining-tokens"]).toBe("100");
  });

  it("writes durations as OpenAI does", () => {
    expect([0, 120, 1_000, 1_500, 360_000, 3_600_000].map(duration)).toEqual([
      "0ms",
      "120ms",
      "1s",
      "1.5s",
      "6m0s",
      "1h0m0s",
    ]);
  });
});
