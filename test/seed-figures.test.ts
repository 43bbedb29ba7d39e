/** The seeds' own arithmetic, carried out by the ledger and not beside it. */
import { describe, expect, it } from "vitest";
import { AUTO_SAMPLES_MIN } from "../src/ledger/bounds.ts";
import type { GaugeSpec } from "../src/policy/limit-schema.ts";
import { change, ledgerWith, randomFrom } from "./ledger/steps.ts";
import { bucket, gauge, rolling, TestLedger } from "./support/ledger.ts";

const HOURS = { leaseTtlMs: 24 * 3_600_000 };

/** How many of these calls get in at once. */
function admittedAtOnce(
  ledger: TestLedger,
  inputTokens: number,
  outputTokens: number,
  tries = 100_000,
): number {
  let admitted = 0;
  while (
    admitted < tries &&
    ledger.reserve(`r${ledger.nowMs}-${admitted}`, inputTokens, outputTokens).type === "reserved"
  )
    admitted += 1;
  return admitted;
}

/** Calls a minute that an allowance of tokens lets in for as long as it lasts, each as soon as the ledger says. */
function callsAMinute(tokensPerMinute: number, inputTokens: number, outputTokens: number): number {
  const minutes = 10;
  const ledger = ledgerWith(HOURS, bucket(tokensPerMinute, tokensPerMinute));
  ledger.reserve("all that is there", tokensPerMinute, 0);
  const endMs = ledger.nowMs + minutes * 60_000;
  let admitted = 0;
  while (ledger.nowMs <= endMs) {
    const reply = ledger.reserve(`r${admitted}`, inputTokens, outputTokens);
    if (reply.type === "reserved") admitted += 1;
    else if (reply.type === "refused") ledger.tick(Math.max(1, reply.retryAfterMs ?? Number.NaN));
  }
  return Math.round(admitted / minutes);
}

/** An account of 500 calls and 200,000 tokens a minute, seen through calls that stay 1.4 seconds. */
const calls = (scale = 1): GaugeSpec =>
  gauge("concurrency", "auto", { name: "calls", allowancePerMinute: 500 * scale, headroom: 0.8 });
const tokens = gauge("in_flight_tokens", "auto", {
  name: "flight",
  allowancePerMinute: 200_000,
  headroom: 0.8,
});

/** The last of the stays that the gauges need ends when this is done. */
function seen(ledger: TestLedger, whileTheLastIsInside: () => void = () => {}): TestLedger {
  for (let i = 1; i <= AUTO_SAMPLES_MIN; i += 1) {
    ledger.reserve(`s${i}`, 10, 10);
    ledger.tick(1_400);
    if (i === AUTO_SAMPLES_MIN) whileTheLastIsInside();
    ledger.settle(`s${i}`, 10, 10);
  }
  return ledger;
}

describe("seed 002: bounds in flight", () => {
  it("seed 002: 9.3 calls at 500 a minute, headroom 0.8 and 1.4 seconds", () => {
    expect(seen(ledgerWith(HOURS, calls())).row("calls").capacity).toBe(9);
    expect(seen(ledgerWith(HOURS, calls(10))).row("calls").capacity).toBe(93); // of ten such accounts
    expect(admittedAtOnce(seen(ledgerWith(HOURS, calls(), tokens)), 250, 32)).toBe(9);
  });

  it("seed 002: 3,733 tokens at 200,000 a minute, headroom 0.8 and 1.4 seconds", () => {
    expect(seen(ledgerWith(HOURS, tokens)).row("flight").capacity).toBe(3_733);
  });

  it("seed 002: five calls of 3,456 are 17,280 in flight, 4.6 times what the tokens allow; one gets in", () => {
    const ledger = ledgerWith(HOURS, calls(), tokens);
    // The gauges are open still: all five are inside when the last sample closes them.
    seen(ledger, () => expect(admittedAtOnce(ledger, 3_200, 256, 5)).toBe(5));
    const { held, capacity } = ledger.row("flight");
    expect([held, capacity]).toEqual([17_280, 3_733]);
    expect(Math.round((10 * held) / (capacity ?? Number.NaN)) / 10).toBe(4.6);
    const closed = seen(ledgerWith(HOURS, calls(), tokens));
    expect(admittedAtOnce(closed, 3_200, 256)).toBe(1);
    expect(closed.reserve("second", 3_200, 256)).toMatchObject({
      code: "in_flight_exhausted",
      limit: "flight",
    });
    expect(closed.row("calls").level).toBe(8);
  });

  it("seed 002: a call of 13,024 against 3,733 goes alone, and alone it stays", () => {
    const ledger = seen(ledgerWith(HOURS, tokens));
    expect(ledger.reserve("contract", 12_000, 1_024).type).toBe("reserved");
    expect(ledger.reserve("small", 1, 0)).toMatchObject({ code: "in_flight_exhausted" });
    ledger.settle("contract", 12_000, 900);
    expect(ledger.reserve("small", 1, 0).type).toBe("reserved");
    expect(ledger.reserve("contract 2", 12_000, 1_024)).toMatchObject({ code: "in_flight_exhausted" });
    ledger.settle("small", 1, 0);
    expect(ledger.reserve("contract 2", 12_000, 1_024).type).toBe("reserved");
    expect(ledger.row("flight").held).toBe(13_024);
  });

  it("seed 002: the same call fits the 16,000 tokens of six-second stays, with no room for a second", () => {
    const ledger = ledgerWith(HOURS, tokens);
    for (let i = 0; i < AUTO_SAMPLES_MIN; i += 1) {
      ledger.reserve(`s${i}`, 10, 10);
      ledger.tick(6_000);
      ledger.settle(`s${i}`, 10, 10);
    }
    expect(ledger.row("flight").capacity).toBe(16_000);
    expect(admittedAtOnce(ledger, 12_000, 1_024)).toBe(1);
  });

  it("seed 002: eight workers with a gate of 3,733 each have 29,864 in flight, one ledger 3,733", () => {
    const inFlight = (ledgers: readonly TestLedger[]) =>
      ledgers.reduce((sum, ledger) => sum + admittedAtOnce(ledger, 1, 0), 0);
    const gate = () => ledgerWith(HOURS, gauge("in_flight_tokens", 3_733, { name: "flight" }));
    expect(inFlight(Array.from({ length: 8 }, gate))).toBe(29_864);
    expect(inFlight([gate()])).toBe(3_733);
  });
});

describe("seeds 000 and 002: calls a minute are the allowance over what each holds", () => {
  it.each([
    ["002", 200_000, 250, 32, 709],
    ["002", 200_000, 3_200, 256, 58],
    ["002", 200_000, 12_000, 1_024, 15],
    ["002", 200_000, 250, 4_096, 46],
    ["000", 285_000, 740, 16_000, 17],
    ["000", 285_000, 740, 205, 302],
  ])(
    "seed %s: of %i a minute, %i in and %i reserved: %i",
    (_, allowance, inputTokens, outputTokens, expected) => {
      expect(callsAMinute(allowance, inputTokens, outputTokens)).toBe(expected);
    },
  );

  it("seed 002: a ceiling of 4,096 for a forty-token answer holds 4,346 and takes 709 calls to 46", () => {
    const ledger = new TestLedger(bucket(200_000, 200_000));
    ledger.reserve("ceiling", 250, 4_096);
    expect(ledger.row().held).toBe(4_346);
    expect(Math.round(callsAMinute(200_000, 250, 32) / callsAMinute(200_000, 250, 4_096))).toBe(15);
  });
});

describe("seed 000: what a local budget misses", () => {
  it("seed 000: 740 in and 205 out, of which only the prompt is reserved: 1.28 times the quota is let in", () => {
    const quota = 300_000;
    const both = admittedAtOnce(new TestLedger(rolling(quota)), 740, 205);
    const promptOnly = admittedAtOnce(new TestLedger(rolling(quota, { unit: "input_tokens" })), 740, 205);
    expect((promptOnly / both).toFixed(2)).toBe("1.28");
    expect(((promptOnly * (740 + 205)) / quota).toFixed(2)).toBe("1.28");
  });

  it("seed 000: eight replicas of 285,000 admit 2.28 million a minute, the one shared ledger 285,000", () => {
    const admittedTokens = (replicas: number) => {
      const ledgers = Array.from({ length: replicas }, () => new TestLedger(rolling(285_000)));
      let sum = 0;
      for (const ledger of ledgers) {
        admittedAtOnce(ledger, 740, 210);
        sum += ledger.row("rolling-tokens").held;
      }
      return sum;
    };
    expect(admittedTokens(8)).toBe(2_280_000);
    expect(admittedTokens(1)).toBe(285_000);
  });

  it("seed 000: a prompt of 200,000 fits an idle minute of 285,000, unless a call may take a tenth at most", () => {
    const fits = (perRequestMaxTokens: number | null) =>
      new TestLedger(bucket(285_000, 285_000)).reserve("a", 200_000, 100, { perRequestMaxTokens });
    expect(fits(null).type).toBe("reserved");
    expect(fits(28_500)).toMatchObject({ code: "request_too_large", available: 28_500 });
  });
});

describe("seed 004: errors of the estimate", () => {
  it("seed 004: fifty calls that under-reserve by 600 leave 30,000 of debt, eighteen seconds at 100,000 a minute", () => {
    const ledger = new TestLedger(bucket(100_000, 100_000));
    for (let i = 0; i < 50; i += 1) expect(ledger.reserve(`r${i}`, 1_000, 1_000).type).toBe("reserved");
    for (let i = 0; i < 50; i += 1) ledger.settle(`r${i}`, 1_000, 1_600);
    expect(ledger.row()).toMatchObject({ level: -30_000, debt: 30_000 });
    ledger.tick(17_999);
    expect(ledger.reserve("early", 1, 0)).toMatchObject({ code: "tokens_exhausted", available: 0 });
    expect(ledger.level()).toBeLessThan(0);
    ledger.tick(1);
    ledger.sweep();
    expect(ledger.level()).toBe(0);
    ledger.tick(1);
    expect(ledger.reserve("a", 1, 0).type).toBe("reserved");
  });

  it("seed 004: 200,000 held for every call is refused unconditionally where 120,000 is all there is", () => {
    const ledger = new TestLedger(bucket(120_000, 120_000));
    for (let i = 0; i < 3; i += 1) {
      expect(ledger.reserve(`r${i}`, 0, 200_000)).toMatchObject({
        code: "request_too_large",
        retryAfterMs: null,
      });
      ledger.tick(60_000);
    }
  });
});

describe("seed 003: the ceiling is what is held", () => {
  it.each([90, 180, 400, 900, 2_000])(
    "seed 003: 75 of 400 are let in on 400,000 with a ceiling of 4,096, at an output median of %i",
    (median) => {
      const random = randomFrom(median);
      const output = () => {
        const normal = Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
        return Math.min(4_096, Math.round(median * Math.exp(0.8 * normal)));
      };
      const ledger = new TestLedger(bucket(400_000, 400_000));
      // What was learnt before, and what it drained, must not show.
      for (let i = 0; i < 300; i += 1) {
        ledger.reserve(`before${i}`, 1_237, 4_096);
        ledger.settle(`before${i}`, 1_237, output());
        ledger.tick(500);
      }
      change(ledger, [bucket(400_000, 400_000)]);
      ledger.tick(120_000);
      const burst = Array.from({ length: 400 }, (_, i) => `r${i}`);
      const admitted = burst.filter((id) => ledger.reserve(id, 1_237, 4_096).type === "reserved");
      expect(admitted).toHaveLength(75);
      const { settledTotal } = ledger.row();
      for (const id of admitted) ledger.settle(id, 1_237, output());
      const used = (ledger.row().settledTotal - settledTotal) / 75 - 1_237;
      expect(used).toBeGreaterThan(0.9 * median); // the answers did differ
    },
  );
});
