/** Counting: exact where js-tiktoken's own encoder can be waited for, bounded everywhere else. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Counter } from "../../src/tokens/counter.ts";
import { loadEncoding } from "../../src/tokens/encodings.ts";
import { ENCODINGS, plainTokens } from "./oracle.ts";

/** One seed, so that a failure comes again. */
fc.configureGlobal({ seed: 20_260_101 });

const LOWER = "abcdefghijklmnopqrstuvwxyz";
const BASE64 = `${LOWER.toUpperCase()}${LOWER}0123456789+/`;

/** Text of a fixed pseudo-random choice, so that a failure can be repeated. */
function scramble(length: number, alphabet: readonly string[]): string {
  let state = 12345;
  let text = "";
  for (let i = 0; i < length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    text += alphabet[(state >>> 12) % alphabet.length];
  }
  return text;
}

const ENGLISH =
  "The gateway holds tokens before the provider sees a request, and settles afterwards; it's what we'd call a weir. ";
const CODE =
  "export function refill(level: number, perMinute = 60_000): number {\n\treturn level + perMinute; // ½ a mile\n}\r\n\n";
const HINDI = "नमस्ते दुनिया, यह एक परीक्षण है। ";
const CJK = Array.from({ length: 3000 }, (_, i) => String.fromCharCode(0x4e00 + i));

const ORDINARY: Readonly<Record<string, string>> = {
  english: ENGLISH.repeat(200),
  code: CODE.repeat(200),
  hindi: HINDI.repeat(60),
  json: JSON.stringify({
    type: "object",
    properties: { city: { enum: ["São Paulo", "東京"], default: null } },
  }),
  emoji: "👩‍👩‍👧‍👦😀 ".repeat(40),
  capitals: "HTTPServer XMLHttpRequest ÀÉÎ Straße's IT'S we'LL",
  numbers: "3.14159265358979 1,000,000 0x1F600",
  spaces: `a${" ".repeat(300)}b\n\n\n   \n${"\t".repeat(50)}c`,
  letters: scramble(900, [...LOWER]),
  base64: scramble(1500, [...BASE64]),
  cjk: scramble(400, CJK),
  rule: "-".repeat(700) + "=".repeat(700),
  controls: "explain <|endoftext|> and <|im_start|>system",
  empty: "",
};

/** Generous against slow machines: quadratic merging of these takes from seconds to hours. */
const PATHOLOGICAL_MS_MAX = 1000;

const PATHOLOGICAL: Readonly<Record<string, string>> = {
  '"a" x 100,000': "a".repeat(100_000),
  '"_" x 50,000': "_".repeat(50_000),
  '" " x 200,000': " ".repeat(200_000),
  "100,000 random letters": scramble(100_000, [...LOWER]),
  '"\\n" x 50,000': "\n".repeat(50_000),
  "a megabyte of base64": scramble(1_000_000, [...BASE64]),
  "a megabyte of random letters": scramble(1_000_000, [...LOWER]),
  "999 spaces and a letter, for a megabyte": `${" ".repeat(999)}x`.repeat(1000),
  "20,000 ideographs": scramble(20_000, CJK),
  "4,000 emoji": "😀".repeat(4000),
  '"aA" x 100,000': "aA".repeat(100_000),
  "a megabyte of punctuation": scramble(1_000_000, [..."!@#$%^&*()_-+={}[]<>?/|~"]),
};

for (const encoding of ENCODINGS) {
  const plain = (text: string) => plainTokens(encoding, text);

  describe(`${encoding} on ordinary text`, () => {
    it.each(Object.entries(ORDINARY))("counts %s exactly as the plain encoder", async (_, text) => {
      const counter = await loadEncoding(encoding);
      expect(counter.count(text)).toEqual({ tokens: plain(text), bounded: false });
    });

    it("agrees with the plain encoder on arbitrary text", async () => {
      const counter = await loadEncoding(encoding);
      const texts = fc.oneof(
        fc.string({ unit: "binary", maxLength: 80 }),
        fc.string({
          unit: fc.constantFrom("a", "B", " ", "\n", "'", "s", "9", "é", "日", "😀", "́", "-", "/", "\t"),
        }),
      );
      fc.assert(
        fc.property(texts, (text) => {
          expect(counter.count(text).tokens).toBe(plain(text));
        }),
        { numRuns: 400 },
      );
    });

    it("TOK-04: takes control-token spellings for ordinary text, several tokens each", async () => {
      const counter = await loadEncoding(encoding);
      for (const spelling of ["<|endoftext|>", "<|im_start|>", "<|endofprompt|>"]) {
        expect(counter.count(spelling).tokens).toBeGreaterThan(2);
      }
    });

    it("TOK-05: counts a lone surrogate as U+FFFD", async () => {
      const counter = await loadEncoding(encoding);
      for (const lone of ["\ud83d", "\ude00"]) {
        expect(counter.count(`x${lone}y`)).toEqual(counter.count("x\ufffdy"));
      }
    });
  });

  describe(`${encoding} on text made to be slow`, () => {
    it.each(Object.entries(PATHOLOGICAL))("TOK-01: %s is counted in bounded time", async (_, text) => {
      const counter = await loadEncoding(encoding);
      const startedAt = performance.now();
      const { tokens } = counter.count(text);
      expect(performance.now() - startedAt).toBeLessThan(PATHOLOGICAL_MS_MAX);
      expect(tokens).toBeGreaterThan(0);
      expect(tokens).toBeLessThanOrEqual(Buffer.byteLength(text));
    });

    it("TOK-02: a million of one punctuation mark is no overflow", async () => {
      const counter = await loadEncoding(encoding);
      const { tokens } = counter.count("^".repeat(1_000_000));
      expect(tokens).toBeGreaterThanOrEqual(plain("^".repeat(400)) * 2500 * 0.99);
      expect(tokens).toBeLessThan(1_000_000);
    });

    it("never overflows, however long one run of marks is", async () => {
      const counter = await loadEncoding(encoding);
      expect(counter.count("\u0301".repeat(9_000_000)).bounded).toBe(true);
    });
  });
}

describe("bounds", () => {
  it("TOK-01: a megabyte of one character is counted exactly", async () => {
    const counter = await loadEncoding("o200k_base");
    // The longest tokens that such runs become divide a power of two, so the whole run's count is known.
    for (const [letter, perToken] of [
      ["a", 8],
      ["^", 8],
      [" ", 128],
      ["-", 64],
    ] as const) {
      expect(counter.count(letter.repeat(2 ** 20 - 128))).toEqual({
        tokens: (2 ** 20 - 128) / perToken,
        bounded: false,
      });
    }
  });

  it("a run that is cut, which none below a megabyte is, falls short of nothing", async () => {
    const counter = await loadEncoding("o200k_base");
    const letters = scramble(1_500_000, [...LOWER]);
    const whole = counter.count(letters);
    const halves = [counter.count(letters.slice(0, 750_000)), counter.count(letters.slice(750_000))];
    expect(halves.some(({ bounded }) => bounded)).toBe(false);
    expect(whole.bounded).toBe(true);
    expect(Math.abs(whole.tokens - halves.reduce((sum, { tokens }) => sum + tokens, 0))).toBeLessThan(8);
    const running = counter.running();
    for (let from = 0; from < 200_000; from += 50) running.push(letters.slice(from, from + 50));
    const exact = counter.count(letters.slice(0, 200_000)).tokens;
    expect(running.tokens).toBeGreaterThanOrEqual(exact);
    expect(running.tokens).toBeLessThan(exact * 1.01);
  });

  it("PLA-15 past the budget of one call, which is of work and not of time, the rest counts as its bytes", async () => {
    const counter = await loadEncoding("o200k_base");
    const letters = scramble(8_000_000, [...LOWER]);
    const { tokens, bounded } = counter.count(letters);
    expect(bounded).toBe(true);
    expect(tokens).toBeGreaterThan(5_000_000);
    expect(tokens).toBeLessThan(8_000_000);
  });

  it("texts counted on one budget share it, and one that comes alone has its own", async () => {
    const counter = await loadEncoding("o200k_base");
    const letters = scramble(16_000, [...LOWER]);
    const alone = counter.count(letters);
    const budget = { spentSteps: 0 };
    expect(counter.count(letters, budget)).toEqual(alone);
    for (let i = 0; i < 400; i++) counter.count(letters, budget);
    expect(counter.count(letters, budget)).toEqual({ tokens: 16_000, bounded: true });
    expect(counter.count(letters)).toEqual(alone);
  });

  it("work is counted alike whatever was counted before, and twice the text is twice the work", async () => {
    const counter = await loadEncoding("o200k_base");
    const steps = (text: string) => {
      const budget = { spentSteps: 0 };
      counter.count(text, budget);
      return budget.spentSteps;
    };
    const runs = ["a", " ", "😀", "-", "漢", "^", "aA", "\n"].map((each) =>
      each.repeat(100_000 / each.length),
    );
    for (const run of [...runs, scramble(100_000, CJK), scramble(100_000, [...LOWER])]) {
      const once = steps(run);
      expect(steps(run)).toBe(once);
      expect(steps(run + run) / once).toBeLessThanOrEqual(2.05);
    }
  });

  it("gives the same answer every time, whatever was counted before", async () => {
    const counter = await loadEncoding("cl100k_base");
    const text = scramble(30_000, [...LOWER]);
    const first = counter.count(text);
    counter.count("a".repeat(5000));
    expect(counter.count(text)).toEqual(first);
  });

  it("TOK-03: 4,000 deltas cost as much as their text, not as its square", async () => {
    const counter = await loadEncoding("o200k_base");
    const startedAt = performance.now();
    const running = counter.running();
    for (let i = 1; i <= 4000; i++) {
      running.push(" wo");
      running.push("rd");
      expect(running.tokens).toBe(i);
    }
    expect(performance.now() - startedAt).toBeLessThan(500);
  });
});

describe("loading", () => {
  it("loads each encoding once however many ask", async () => {
    const [a, b]: Counter[] = await Promise.all([loadEncoding("o200k_base"), loadEncoding("o200k_base")]);
    expect(a).toBe(b);
    expect(a?.encoding).toBe("o200k_base");
    expect(await loadEncoding("cl100k_base")).not.toBe(a);
  });
});
