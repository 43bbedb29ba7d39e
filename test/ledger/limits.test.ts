import { describe, expect, it } from "vitest";
import { amountOf } from "../../src/ledger/amounts.ts";
import type { Reserve, Usage } from "../../src/ledger/commands.ts";
import type { LedgerEvent } from "../../src/ledger/types.ts";
import { balanceOf } from "../../src/ledger/view.ts";
import type { Limit } from "../../src/policy/limit-schema.ts";
import {
  bucket,
  calendar,
  gauge,
  requests,
  rolling,
  scope,
  slots,
  TestLedger,
  usage,
} from "../support/ledger.ts";
import { ledgerWith } from "./steps.ts";

/** A token in costs a third of a nano-dollar, cached a thousandth of one, a token out two. */
const price = { inputPicoUsd: 333, cachedInputPicoUsd: 1, outputPicoUsd: 2_000 };

const settleWith = (ledger: TestLedger, requestId: string, more: Partial<Usage>): LedgerEvent =>
  ledger.run({ type: "settle", requestId, fence: 1, usage: { ...usage(0, 0), ...more }, basis: "exact" });

describe("units", () => {
  const weigh = 0.25;
  const limits: readonly (readonly [Limit, number, number])[] = [
    // limit, what a hold of 100 in and 10 out takes, what 90 in (41 of them cached) and 5 out come to
    [bucket(1e6, 0, { name: "t", cachedInputWeight: weigh }), 110, 49 + 11 + 5],
    [bucket(1e6, 0, { name: "i", unit: "input_tokens", cachedInputWeight: weigh }), 100, 49 + 11],
    [bucket(1e6, 0, { name: "o", unit: "output_tokens" }), 10, 5],
    [bucket(1e6, 0, { name: "r", unit: "requests" }), 1, 1],
    [bucket(1e6, 0, { name: "n", unit: "nano_usd" }), 34 + 20, 27],
    [gauge("concurrency", 10, { name: "c" }), 1, 0],
    [gauge("in_flight_tokens", 1_000, { name: "f" }), 110, 0],
    [calendar(1e6, { name: "wt", unit: "tokens", cachedInputWeight: 0 }), 110, 49 + 5],
    [rolling(1e6, { name: "ro", unit: "output_tokens" }), 10, 5],
  ];

  it.each(limits)(
    "$unit of a $kind: the hold presumes that nothing is cached, the settlement weighs it",
    (limit, held, spent) => {
      const ledger = new TestLedger(limit);
      ledger.reserve("a", 100, 10, { price });
      expect(ledger.row(limit.name)).toMatchObject({ held, settledTotal: 0 });
      settleWith(ledger, "a", { inputTokens: 90, cachedInputTokens: 41, outputTokens: 5 });
      expect(ledger.row(limit.name)).toMatchObject({ held: 0, settledTotal: spent });
      const capacity = ledger.row(limit.name).capacity ?? 0;
      expect(ledger.level(limit.name)).toBe(capacity - spent);
    },
  );

  it("money is rounded up once a request, and a model without a price takes none", () => {
    const spend = bucket(100, 0, { unit: "nano_usd" });
    const size = (inputTokens: number, outputTokens = 0) => ({ inputTokens, outputTokens });
    expect(amountOf(spend, size(1), price)).toBe(1);
    expect(amountOf(spend, size(3), price)).toBe(1);
    expect(amountOf(spend, size(4), price)).toBe(2);
    expect(amountOf(spend, size(1_000), price)).toBe(333);
    expect(amountOf(spend, size(1_000, 500), null)).toBe(0);
    expect(amountOf(spend, size(0), price)).toBe(0);
  });

  it("more cached input than input counts as all of it", () => {
    const half = bucket(100, 0, { cachedInputWeight: 0.5 });
    expect(amountOf(half, { inputTokens: 10, outputTokens: 0, cachedInputTokens: 99 }, null)).toBe(5);
  });
});

describe("scopes", () => {
  const asked: readonly (readonly [
    "class" | "route" | "model" | "pool" | "key" | "user",
    Partial<Reserve>,
  ])[] = [
    ["class", { class: "batch", scope: { ...scope, class: "batch" } }],
    ["route", { scope: { ...scope, route: "other" } }],
    ["model", { scope: { ...scope, model: "other" } }],
    ["pool", { scope: { ...scope, pool: "other" } }],
    ["key", { scope: { ...scope, key: "other" } }],
    ["user", { scope: { ...scope, user: "other" } }],
  ];

  it.each(asked)("LIM-03 per %s: what one spends, another still has", (dimension, other) => {
    const ledger = new TestLedger(bucket(400, 0, { name: "each", per: ["tenant", dimension] }));
    expect(ledger.reserve("a", 400, 0).type).toBe("reserved");
    const limit = `each|${dimension}=${scope[dimension]}`;
    expect(ledger.reserve("b", 10, 0)).toMatchObject({ code: "tokens_exhausted", limit });
    expect(ledger.reserve("c", 10, 0, other).type).toBe("reserved");
    const rows = balanceOf(ledger.state, "acme").limits;
    expect(new Set(rows.map(({ level }) => level))).toEqual(new Set([0, 390]));
    expect(new Set(rows.map((row) => row.scope[dimension]))).toEqual(
      new Set([scope[dimension], other.scope?.[dimension]]),
    );
  });

  it("a limit of two dimensions has an instance for each pair", () => {
    const ledger = new TestLedger(bucket(10, 0, { name: "pair", per: ["model", "key"] }));
    for (const model of ["a", "b"])
      for (const key of ["a", "b"])
        expect(ledger.reserve(`${model}${key}`, 10, 0, { scope: { ...scope, model, key } }).type).toBe(
          "reserved",
        );
    expect(ledger.reserve("x", 1, 0, { scope: { ...scope, model: "b", key: "a" } })).toMatchObject({
      limit: "pair|model=b|key=a",
    });
    expect(ledger.state.limits.size).toBe(4);
  });

  it("names that carry the key's own signs stay apart", () => {
    const ledger = new TestLedger(bucket(10, 0, { name: "pair", per: ["model", "key"] }));
    ledger.reserve("a", 10, 0, { scope: { ...scope, model: "m|key=k", key: "" } });
    expect(ledger.reserve("b", 10, 0, { scope: { ...scope, model: "m", key: "k" } }).type).toBe("reserved");
    expect(balanceOf(ledger.state, "t").limits.map((row) => row.scope)).toContainEqual({
      tenant: "t",
      model: "m|key=k",
      key: "",
    });
  });

  it("instances at rest are forgotten, those that are not stay, and totals of the tenant never fall", () => {
    const users = bucket(100, 60_000, { name: "user", per: ["user"] });
    const ledger = ledgerWith({ leaseTtlMs: 3_600_000 }, bucket(1e9, 60_000_000), users);
    const call = (user: string) => ledger.reserve(user, 50, 0, { scope: { ...scope, user } });
    call("open");
    let total = 0;
    for (let i = 0; i < 500; i += 1) {
      call(`u${i}`);
      ledger.settle(`u${i}`, 50, 0);
      ledger.tick(1_000);
      expect(ledger.row().settledTotal).toBe(total + 50);
      total += 50;
    }
    expect(ledger.state.limits.size).toBeLessThan(10);
    expect(ledger.state.limits.get("user|user=open")?.held).toBe(50);
    expect(ledger.sameAsFold()).toBe(true);
    // The lease that outlived its instance's neighbours is settled where it was held.
    ledger.settle("open", 80, 0);
    expect(ledger.state.limits.get("user|user=open")).toMatchObject({ held: 0, settledTotal: 80 });
  });

  it("a bucket in debt is not at rest: nobody is forgiven by being forgotten", () => {
    const ledger = new TestLedger(bucket(100, 0, { name: "user", per: ["user"] }));
    ledger.reserve("a", 100, 0, { scope: { ...scope, user: "debtor" } });
    ledger.settle("a", 900, 0);
    for (let i = 0; i < 20; i += 1) ledger.reserve(`b${i}`, 1, 0, { scope: { ...scope, user: `u${i}` } });
    expect(ledger.reserve("c", 1, 0, { scope: { ...scope, user: "debtor" } }).type).toBe("refused");
  });
});

describe("unlimited and none", () => {
  it.each<readonly [Limit]>([
    [bucket(0, 0, { capacity: null })],
    [slots(null)],
    [gauge("in_flight_tokens", null)],
    [calendar(0, { capacity: null })],
    [rolling(0, { capacity: null })],
  ])("LIM-18 null is unlimited: $kind", (limit) => {
    const ledger = new TestLedger(limit);
    expect(ledger.reserve("a", 1e8, 1e8, { price })).toMatchObject({ type: "reserved", charges: [] });
  });

  it.each<readonly [Limit]>([
    [bucket(0, 1_000)],
    [requests(0)],
    [slots(0)],
    [gauge("in_flight_tokens", 0)],
    [calendar(0)],
    [calendar(0, { stop: "spent" })],
    [rolling(0)],
  ])("LIM-18 0 denies, and does not say when: $kind", (limit) => {
    expect(new TestLedger(limit).reserve("a", 1, 1, { price })).toMatchObject({
      type: "refused",
      limit: limit.name,
      retryAfterMs: null,
    });
  });
});

describe("order and evidence", () => {
  it("judges too large before exhausted, wherever the two limits stand", () => {
    const small = bucket(100, 60, { name: "small" });
    const large = bucket(1_000, 60, { name: "large" });
    for (const limits of [
      [small, large],
      [large, small],
    ]) {
      const ledger = new TestLedger(...limits);
      ledger.reserve("a", 100, 0);
      expect(ledger.reserve("b", 1_001, 0)).toMatchObject({ code: "request_too_large", retryAfterMs: null });
      expect(ledger.reserve("c", 101, 0)).toMatchObject({
        code: "request_too_large",
        limit: "small",
        available: 100,
      });
      expect(ledger.reserve("d", 100, 0)).toMatchObject({ code: "tokens_exhausted", limit: "small" });
    }
  });

  it("judges too large before another limit's exhaustion", () => {
    const ledger = new TestLedger(slots(1), bucket(1_000, 60));
    ledger.reserve("a", 10, 0);
    expect(ledger.reserve("b", 1_001, 0)).toMatchObject({
      code: "request_too_large",
      limit: "tenant-tokens",
    });
    expect(ledger.reserve("c", 900, 0)).toMatchObject({ code: "concurrency_exhausted" });
  });

  it("names the first in the policy's order of those that are too small", () => {
    const of = (name: string) => bucket(100, 60, { name });
    expect(new TestLedger(of("x"), of("y")).reserve("a", 101, 0)).toMatchObject({ limit: "x" });
    expect(new TestLedger(of("y"), of("x")).reserve("a", 101, 0)).toMatchObject({ limit: "y" });
  });

  it.each<readonly [Limit, string]>([
    [bucket(20, 60), "tokens_exhausted"],
    [bucket(10, 60, { unit: "input_tokens" }), "tokens_exhausted"],
    [bucket(10, 60, { unit: "output_tokens" }), "tokens_exhausted"],
    [requests(1), "requests_exhausted"],
    [slots(1), "concurrency_exhausted"],
    [gauge("in_flight_tokens", 20), "in_flight_exhausted"],
    [calendar(24), "spend_exhausted"],
    [rolling(20), "tokens_exhausted"],
  ])("says which bound and by its unit: $kind of $unit", (limit, code) => {
    const ledger = new TestLedger(limit);
    expect(ledger.reserve("a", 10, 10, { price }).type).toBe("reserved");
    const before = JSON.stringify(ledger.row(limit.name));
    expect(ledger.reserve("b", 10, 10, { price })).toMatchObject({ code, limit: limit.name, available: 0 });
    expect(JSON.stringify(ledger.row(limit.name))).toBe(before);
  });

  it("I9 takes from no limit when one of eight refuses", () => {
    const open = Array.from({ length: 7 }, (_, i) => bucket(1_000, 60, { name: `b${i}` }));
    const ledger = new TestLedger(...open, slots(1));
    ledger.reserve("a", 10, 0);
    const levels = () => open.map(({ name }) => ledger.level(name));
    const before = levels();
    expect(ledger.reserve("b", 10, 0)).toMatchObject({ code: "concurrency_exhausted" });
    expect(levels()).toEqual(before);
  });
});

describe("when it fits", () => {
  const limits: readonly (readonly [Limit, number])[] = [
    [bucket(1_000, 7), 7_000],
    [bucket(1_000, 3_001), 3],
    [bucket(1_000, 700, { batchFloor: 0.3 }), 900],
    [rolling(1_000), 30_123],
    [calendar(1_000, { unit: "tokens", every: "hour" }), 77_777],
    [calendar(1_000, { unit: "tokens", every: "hour", stop: "spent" }), 77_777],
  ];
  it.each(limits)("LIM-05 to the millisecond, and not one before: $kind", (limit, laterMs) => {
    for (const requestClass of ["interactive", "batch"] as const) {
      const ledger = new TestLedger(limit);
      // Two seconds apart, so that a rolling limit frees in parts; and settled, so that a window is spent.
      for (const part of ["a", "b"]) {
        ledger.reserve(part, 350, 0, { class: requestClass });
        ledger.settle(part, limit.kind === "window" ? 600 : 350, 0);
        ledger.tick(2_345);
      }
      ledger.tick(laterMs);
      const refused = ledger.reserve("c", 600, 0, { class: requestClass });
      if (refused.type !== "refused") throw new Error(refused.type);
      expect(refused.retryAfterMs).toBeGreaterThan(0);
      ledger.tick((refused.retryAfterMs ?? 0) - 1);
      expect(ledger.reserve("c", 600, 0, { class: requestClass }).type).toBe("refused");
      ledger.tick(1);
      expect(ledger.reserve("c", 600, 0, { class: requestClass }).type).toBe("reserved");
    }
  });

  it("I9 LIM-05 a batch waits for its floor to be above it, an interactive call does not", () => {
    const ledger = new TestLedger(bucket(1_000, 60, { batchFloor: 0.25 }));
    ledger.reserve("a", 700, 0);
    expect(ledger.reserve("b", 100, 0, { class: "batch" })).toMatchObject({
      code: "below_batch_floor",
      requested: 100,
      available: 50,
      retryAfterMs: 50_000,
    });
    expect(ledger.reserve("c", 350, 0, { class: "batch" })).toMatchObject({ code: "tokens_exhausted" });
    expect(ledger.reserve("d", 300, 0).type).toBe("reserved");
  });

  it("of a gauge it is the mean time between two settlements, at least a second", () => {
    const ledger = new TestLedger(slots(2));
    ledger.reserve("a", 1, 0);
    ledger.reserve("b", 1, 0);
    expect(ledger.reserve("c", 1, 0)).toMatchObject({ retryAfterMs: 1_000 });
    ledger.tick(9_000);
    ledger.settle("a", 1, 0);
    ledger.reserve("c", 1, 0);
    expect(ledger.reserve("d", 1, 0)).toMatchObject({ retryAfterMs: 4_500 });
  });
});
