import { describe, expect, it } from "vitest";
import { AUTO_SAMPLES_MIN } from "../../src/ledger/bounds.ts";
import type { GaugeSpec, Limit } from "../../src/policy/limit-schema.ts";
import { bucket, gauge, requests, scope, slots, TestLedger } from "../support/ledger.ts";
import { change, ledgerWith } from "./steps.ts";

const calls = (more: Partial<GaugeSpec> = {}): GaugeSpec =>
  gauge("concurrency", "auto", { name: "calls", allowancePerMinute: 500, headroom: 0.8, ...more });

const LONG = { leaseTtlMs: 3_600_000 };

/** One call after another, each as long as this. */
function stay(ledger: TestLedger, count: number, stayMs: number): void {
  for (let i = 0; i < count; i += 1) {
    const id = `s${ledger.record.length}`;
    ledger.reserve(id, 10, 0);
    ledger.tick(stayMs);
    ledger.settle(id, 10, 0);
  }
}

const maxOf = (ledger: TestLedger, name = "calls"): number | null => ledger.row(name).capacity;

describe("a gauge that derives itself", () => {
  it("is open until it has seen fifty calls, then allowance a minute times headroom times the mean stay", () => {
    const ledger = ledgerWith(LONG, calls());
    stay(ledger, AUTO_SAMPLES_MIN - 1, 6_000);
    expect(ledger.row("calls")).toMatchObject({ capacity: null, level: null });
    for (let i = 0; i < 100; i += 1) expect(ledger.reserve(`open${i}`, 1, 0).type).toBe("reserved");
    stay(ledger, 1, 6_000);
    expect(maxOf(ledger)).toBe(Math.floor((500 / 60) * 0.8 * 6));
    expect(ledger.reserve("one more", 1, 0)).toMatchObject({ code: "concurrency_exhausted", limit: "calls" });
  });

  it("counts the whole stay, from the reserve to the end", () => {
    const ledger = ledgerWith(LONG, calls());
    for (let i = 0; i < AUTO_SAMPLES_MIN; i += 1) {
      const id = `s${i}`;
      ledger.reserve(id, 10, 10);
      ledger.tick(400); // the first token is here
      ledger.run({
        type: "capture",
        requestId: id,
        fence: 1,
        usageEventId: "1",
        size: { inputTokens: 10, outputTokens: 1 },
      });
      ledger.tick(8_600);
      ledger.settle(id, 10, 10);
    }
    expect(maxOf(ledger)).toBe(60); // and not the two or three that 400 ms come to
  });

  it("does the same for tokens, and lets at least one call in", () => {
    const flight = gauge("in_flight_tokens", "auto", { name: "flight", allowancePerMinute: 200_000 });
    const ledger = ledgerWith(LONG, flight);
    stay(ledger, AUTO_SAMPLES_MIN, 6_000);
    expect(maxOf(ledger, "flight")).toBe(16_000);
    const short = ledgerWith(LONG, calls());
    stay(short, AUTO_SAMPLES_MIN, 1);
    expect(maxOf(short)).toBe(1);
  });

  it("follows a lasting change slowly", () => {
    const ledger = ledgerWith(LONG, calls());
    stay(ledger, 400, 6_000);
    expect(maxOf(ledger)).toBe(40);
    stay(ledger, 8, 9_000);
    expect(maxOf(ledger)).toBeLessThanOrEqual(45);
    stay(ledger, 400, 9_000);
    expect(maxOf(ledger)).toBeGreaterThanOrEqual(59);
  });

  it("seed 002: a provider that slows thirtyfold does not talk it from 9 to 295", () => {
    const ledger = ledgerWith(LONG, calls());
    stay(ledger, 2_000, 1_400);
    expect(maxOf(ledger)).toBe(9);
    let most = 0;
    const inside: { id: string; endsAtMs: number }[] = [];
    for (let second = 0; second < 1_200; second += 1) {
      for (let first = inside[0]; first !== undefined && first.endsAtMs <= ledger.nowMs; first = inside[0]) {
        ledger.settle(first.id, 10, 0);
        inside.shift();
      }
      // As many as it lets in.
      for (let id = `slow${second}`; ledger.reserve(id, 10, 0).type === "reserved"; id += "+")
        inside.push({ id, endsAtMs: ledger.nowMs + 44_250 });
      most = Math.max(most, maxOf(ledger) ?? Number.NaN);
      ledger.tick(1_000);
    }
    expect(most).toBeGreaterThan(9);
    expect(most).toBeLessThanOrEqual(20); // twice the median, which is true to nine percent
  });

  it("learns nothing from what nobody could tell, nor from a call that was given back", () => {
    const ledger = ledgerWith({ leaseTtlMs: 1_000, reconcileAgeMaxMs: 1_000 }, calls());
    for (let i = 0; i < 2 * AUTO_SAMPLES_MIN; i += 1) {
      ledger.reserve(`a${i}`, 10, 0);
      ledger.reserve(`b${i}`, 10, 0);
      ledger.run({ type: "release", requestId: `a${i}`, fence: 1, evidence: "not_sent" });
      ledger.tick(1_000);
      ledger.sweep();
      ledger.tick(1_000);
      expect(ledger.sweep()).toMatchObject([{ type: "settled", basis: "charge_hold" }]);
    }
    expect(maxOf(ledger)).toBeNull();
  });

  it("is off where a bucket of its scope and unit paces already, and only there", () => {
    const here = (...limits: readonly Limit[]) => {
      const ledger = ledgerWith(LONG, ...limits);
      ledger.reserve("a", 1, 0);
      return [...ledger.state.definitions.keys()].some((name) => name === "calls" || name === "flight");
    };
    const flight = gauge("in_flight_tokens", "auto", { name: "flight", allowancePerMinute: 1 });
    expect(here(calls(), requests(500))).toBe(false);
    expect(here(flight, bucket(1_000, 1_000))).toBe(false);
    expect(here(calls({ per: ["model", "key"] }), { ...requests(500), per: ["key", "model"] })).toBe(false);
    expect(here(calls(), bucket(1_000, 1_000))).toBe(true);
    expect(here(flight, requests(500))).toBe(true);
    expect(here(calls({ per: ["model"] }), requests(500))).toBe(true);
    expect(here(calls(), bucket(0, 1, { unit: "requests", capacity: null }))).toBe(true);
    expect(here(gauge("concurrency", 9, { name: "calls" }), requests(500))).toBe(true);
  });

  it("has an instance a model, each with its own stay", () => {
    const ledger = ledgerWith(LONG, calls({ per: ["model"] }));
    for (let i = 0; i < AUTO_SAMPLES_MIN; i += 1) {
      for (const [model, stayMs] of [
        ["quick", 1_500],
        ["slow", 15_000],
      ] as const) {
        const id = `${model}${i}`;
        ledger.reserve(id, 1, 0, { scope: { ...scope, model } });
        ledger.tick(stayMs);
        ledger.settle(id, 1, 0);
      }
    }
    const max = (model: string) => ledger.state.limits.get(`calls|model=${model}`)?.autoMax;
    expect([max("quick"), max("slow")]).toEqual([10, 100]);
  });
});

describe("a policy change", () => {
  it("from auto to fixed and back begins to learn anew; holds stay", () => {
    const ledger = ledgerWith(LONG, calls());
    stay(ledger, AUTO_SAMPLES_MIN, 6_000);
    ledger.reserve("open", 1, 0);
    change(ledger, [gauge("concurrency", 2, { name: "calls" })], LONG);
    expect(ledger.row("calls")).toMatchObject({ capacity: 2, held: 1, level: 1 });
    change(ledger, [calls()], LONG);
    expect(ledger.row("calls")).toMatchObject({ capacity: null, held: 1 });
    ledger.tick(6_000);
    ledger.settle("open", 1, 0);
    stay(ledger, AUTO_SAMPLES_MIN - 1, 6_000);
    expect(ledger.row("calls")).toMatchObject({ capacity: 40, held: 0 });
    expect(ledger.sameAsFold()).toBe(true);
  });

  it("of an auto gauge's headroom is followed by what it has seen", () => {
    const ledger = ledgerWith(LONG, calls());
    stay(ledger, AUTO_SAMPLES_MIN, 6_000);
    change(ledger, [calls({ headroom: 0.4 })], LONG);
    stay(ledger, 8, 6_000);
    expect(maxOf(ledger)).toBe(20);
  });

  it("LIM-19 of a capacity clips the upper side only; a gauge may be over its maximum until calls end", () => {
    const ledger = new TestLedger(bucket(1_000, 0), slots(5));
    for (const id of ["a", "b", "c"]) ledger.reserve(id, 100, 0);
    change(ledger, [bucket(500, 0), slots(2)]);
    expect([ledger.level(), ledger.level("tenant-slots")]).toEqual([500, -1]);
    ledger.settle("a", 100, 0);
    expect(ledger.reserve("d", 1, 0)).toMatchObject({ code: "concurrency_exhausted", available: 0 });
    ledger.settle("b", 100, 0);
    expect(ledger.reserve("d", 1, 0).type).toBe("reserved");
  });

  it("of the scope or the unit begins another limit, which old holds do not move", () => {
    const ledger = new TestLedger(bucket(1_000, 0));
    ledger.reserve("a", 900, 0);
    change(ledger, [bucket(1_000, 0, { per: ["model"] })]);
    expect(ledger.reserve("b", 1_000, 0).type).toBe("reserved");
    ledger.settle("a", 100, 0);
    ledger.settle("b", 1_000, 0);
    expect(ledger.state.limits.get("tenant-tokens|model=m")).toMatchObject({ level: 0, settledTotal: 1_000 });
    change(ledger, [bucket(1_000, 0, { unit: "input_tokens" })]);
    expect(ledger.level()).toBe(1_000);
    expect(ledger.sameAsFold()).toBe(true);
  });
});
