/** What was counted is remembered under both digests, within a bound, and no longer than its policy. */
import { beforeAll, describe, expect, it } from "vitest";
import { ContentDigest } from "../../src/tokens/content-digest.ts";
import { CountCache } from "../../src/tokens/count-cache.ts";
import type { Counter } from "../../src/tokens/counter.ts";
import { installEncoding, loadCounter, loadEncoding } from "../../src/tokens/encodings.ts";

const SECRET = new Uint32Array([20_260_101, 7]);
const text = (n: number) => `${n}: ${"The quick brown fox jumps over the lazy dog. ".repeat(20)}`;

let plain: Counter;
beforeAll(async () => {
  plain = await loadEncoding("o200k_base");
});

/** Of another tokenizer, whose counts are told apart; says how often it was asked. */
function counterOf(digest: string, factor = 1): Counter & { readonly asked: () => number } {
  let asked = 0;
  return {
    encoding: "o200k_base",
    digest,
    running: () => plain.running(),
    asked: () => asked,
    count(each, budget) {
      asked += 1;
      const { tokens, bounded } = plain.count(each, budget);
      return { tokens: tokens * factor, bounded };
    },
  };
}

describe("the cache", () => {
  it("counts a text once", () => {
    const inner = counterOf("a");
    const counter = new CountCache(2 ** 16, SECRET).remembering(inner);
    for (let i = 0; i < 3; i++) expect(counter.count(text(1))).toEqual(plain.count(text(1)));
    expect(inner.asked()).toBe(1);
    counter.count(text(2));
    expect(inner.asked()).toBe(2);
  });

  it("leaves short texts to the counter, and never remembers what a budget has bounded", () => {
    const inner = counterOf("a");
    const cache = new CountCache(2 ** 16, SECRET);
    const counter = cache.remembering(inner);
    counter.count("hi");
    counter.count("hi");
    expect(inner.asked()).toBe(2);
    const spent = { spentSteps: 1e9 };
    expect(counter.count(text(1), spent)).toEqual({ tokens: text(1).length, bounded: true });
    expect(cache.bytes).toBe(0);
    expect(counter.count(text(1))).toEqual(plain.count(text(1)));
  });

  it("stays within its bytes, and forgets first what was longest not asked for", () => {
    const inner = counterOf("a");
    const cache = new CountCache(1_600, SECRET);
    const counter = cache.remembering(inner);
    for (let i = 0; i < 1_000; i++) {
      counter.count(text(i));
      counter.count(text(0));
      expect(cache.bytes).toBeLessThanOrEqual(1_600);
    }
    expect(inner.asked()).toBe(1_000);
    counter.count(text(999));
    expect(inner.asked()).toBe(1_000);
    counter.count(text(1));
    expect(inner.asked()).toBe(1_001);
  });

  it("forgets everything with the policy", () => {
    const inner = counterOf("a");
    const cache = new CountCache(2 ** 16, SECRET);
    const counter = cache.remembering(inner);
    cache.under("one");
    counter.count(text(1));
    cache.under("one");
    counter.count(text(1));
    expect(inner.asked()).toBe(1);
    cache.under("two");
    expect(cache.bytes).toBe(0);
    counter.count(text(1));
    expect(inner.asked()).toBe(2);
  });

  it("never answers with another tokenizer's count", () => {
    const cache = new CountCache(2 ** 16, SECRET);
    const [one, two] = [cache.remembering(counterOf("one")), cache.remembering(counterOf("two", 2))];
    const { tokens } = plain.count(text(1));
    for (let i = 0; i < 2; i++) {
      expect(one.count(text(1)).tokens).toBe(tokens);
      expect(two.count(text(1)).tokens).toBe(2 * tokens);
    }
  });
});

describe("a hot swap under load", () => {
  it("gives each caller one tokenizer's count, and nobody an old one afterwards", async () => {
    const old = await loadEncoding("o200k_base");
    const newer = counterOf("newer", 2);
    const before = plain.count(text(3)).tokens;
    let installed = false;
    const caller = async (i: number) => {
      const counter = await loadCounter("o200k_base", "policy");
      const after = installed;
      const counts: number[] = [];
      for (let round = 0; round < 5; round++) {
        counts.push(counter.count(text(3)).tokens);
        await new Promise((resolve) => setTimeout(resolve, i % 3));
      }
      return { digest: counter.digest, after, counts };
    };
    const callers = Array.from({ length: 50 }, (_, i) => caller(i));
    await new Promise((resolve) => setTimeout(resolve, 3));
    installEncoding(newer);
    installed = true;
    const late = Array.from({ length: 50 }, (_, i) => caller(i));
    try {
      for (const { digest, after, counts } of await Promise.all([...callers, ...late])) {
        expect(digest).toBe(after ? "newer" : old.digest);
        expect(new Set(counts)).toEqual(new Set([after ? 2 * before : before]));
      }
    } finally {
      installEncoding(old);
    }
    expect((await loadCounter("o200k_base", "policy")).count(text(3)).tokens).toBe(before);
  });
});

describe("the digest", () => {
  it("is of the text's bytes and the secret, whatever their length and wherever it is sliced", () => {
    const digest = new ContentDigest(SECRET);
    const seen = new Set<string>();
    for (let length = 0; length < 300; length++) {
      seen.add(digest.of("a".repeat(length)));
      seen.add(digest.of("é".repeat(length + 1)));
      seen.add(digest.of("\0".repeat(length + 1)));
    }
    for (const length of [8_190, 8_191, 8_192, 8_193, 30_000]) {
      const whole = `${"x".repeat(length)}😀${"y".repeat(9_000)}`;
      seen.add(digest.of(whole));
      expect(digest.of(whole)).toBe(digest.of(`${whole.slice(0, 5)}${whole.slice(5)}`));
    }
    expect(seen.size).toBe(905);
    expect(new ContentDigest(new Uint32Array([1, 2])).of("abc")).not.toBe(digest.of("abc"));
  });

  it("spreads one changed bit over all of itself", () => {
    const digest = new ContentDigest(SECRET);
    const base = digest.of(text(0));
    let changed = 0;
    for (let at = 0; at < 256; at++) {
      const other =
        text(0).slice(0, at) + String.fromCharCode(text(0).charCodeAt(at) ^ 1) + text(0).slice(at + 1);
      const bits = BigInt(`0x${base}`) ^ BigInt(`0x${digest.of(other)}`);
      changed += bits.toString(2).replaceAll("0", "").length;
    }
    expect(changed / 256).toBeGreaterThan(30);
    expect(changed / 256).toBeLessThan(34);
  });
});
