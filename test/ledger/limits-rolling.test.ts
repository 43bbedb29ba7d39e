import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { rolling, TestLedger } from "../support/ledger.ts";
import { change, ledgerWith } from "./steps.ts";

const NAME = "rolling-tokens";

describe("a rolling limit", () => {
  it("LIM-05 lets no more through around a minute's end than in it", () => {
    const ledger = new TestLedger(rolling(100, { unit: "requests" }));
    const burst = (atMs: number, name: string) => {
      ledger.nowMs = atMs;
      return Array.from({ length: 100 }, (_, i) => ledger.reserve(`${name}${i}`, 1, 0)).filter(
        ({ type }) => type === "reserved",
      ).length;
    };
    expect(burst(43_259_900, "a")).toBe(100);
    expect(burst(43_260_100, "b")).toBe(0);
    expect(burst(43_259_900 + 60_000, "c")).toBe(0);
    // A charge counts until all of its second is sixty seconds old.
    expect(burst(43_320_000 - 1, "d")).toBe(0);
    expect(burst(43_320_000, "e")).toBe(100);
  });

  it("gives a refund back to the second that was charged", () => {
    const ledger = ledgerWith({ leaseTtlMs: 600_000 }, rolling(100));
    ledger.nowMs = 2_000_000;
    ledger.reserve("a", 100, 0);
    ledger.tick(50_000);
    ledger.settle("a", 30, 0);
    expect(ledger.level(NAME)).toBe(70);
    ledger.tick(10_999);
    expect(ledger.reserve("b", 71, 0)).toMatchObject({ available: 70, retryAfterMs: 1 });
    ledger.tick(1);
    ledger.sweep();
    expect(ledger.level(NAME)).toBe(100);
  });

  it("has nothing to give back of a charge that counts no more", () => {
    const ledger = ledgerWith({ leaseTtlMs: 600_000 }, rolling(100));
    ledger.reserve("a", 100, 0);
    ledger.tick(61_000);
    ledger.reserve("b", 60, 0);
    expect(ledger.settle("a", 30, 0)).toMatchObject({
      moves: [{ returned: 100, spent: 30, forfeitedLevel: 70 }],
    });
    expect(ledger.row(NAME)).toMatchObject({ level: 40, held: 60, settledTotal: 30 });
  });

  it("charges an overrun to the second in which it is told", () => {
    const ledger = ledgerWith({ leaseTtlMs: 600_000 }, rolling(100));
    ledger.nowMs = 2_000_000;
    ledger.reserve("a", 100, 0);
    ledger.tick(30_000);
    ledger.settle("a", 150, 0);
    expect(ledger.row(NAME)).toMatchObject({ level: -50, debt: 50 });
    ledger.nowMs = 2_061_000;
    ledger.sweep();
    expect(ledger.level(NAME)).toBe(50);
    ledger.nowMs = 2_091_000;
    ledger.sweep();
    expect(ledger.level(NAME)).toBe(100);
  });

  it("keeps what it has counted when its amount changes", () => {
    const ledger = new TestLedger(rolling(100));
    ledger.reserve("a", 80, 0);
    change(ledger, [rolling(500)]);
    expect(ledger.level(NAME)).toBe(420);
    change(ledger, [rolling(50)]);
    expect(ledger.level(NAME)).toBe(-30);
  });

  it("remembers a minute, and no more seconds than it has", () => {
    const ledger = new TestLedger(rolling(1e9));
    for (let i = 0; i < 300; i += 1) {
      ledger.reserve(`r${i}`, 1, 0);
      ledger.settle(`r${i}`, 1, 0);
      ledger.tick(700);
    }
    expect(ledger.state.limits.get(NAME)?.slots.length).toBeLessThanOrEqual(61);
  });
});

const step = fc.record({
  waitMs: fc.oneof(
    fc.integer({ min: 0, max: 4_000 }),
    fc.constantFrom(0, 999, 1_000, 20_000, 59_001, 60_000),
  ),
  amount: fc.integer({ min: 1, max: 60 }),
  /** How much of an older call's hold is used, in percent, when it is settled; above 100 it is released. */
  end: fc.option(fc.record({ back: fc.nat({ max: 6 }), percent: fc.integer({ min: 0, max: 120 }) })),
});

describe("any sixty seconds", () => {
  it("LIM-05 hold at most the amount, whatever comes and goes", () => {
    const capacity = 100;
    fc.assert(
      fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
        const ledger = ledgerWith({ leaseTtlMs: 3_600_000 }, rolling(capacity));
        const calls: { id: string; atMs: number; charged: number; open: boolean }[] = [];
        for (const [i, { waitMs, amount, end }] of steps.entries()) {
          ledger.tick(waitMs);
          const ending = end === null ? undefined : calls.at(-1 - end.back);
          if (end !== null && ending?.open) {
            const actual = end.percent > 100 ? 0 : Math.floor((ending.charged * end.percent) / 100);
            if (end.percent > 100)
              ledger.run({ type: "release", requestId: ending.id, fence: 1, evidence: "not_sent" });
            else ledger.settle(ending.id, actual, 0);
            ending.charged = actual;
            ending.open = false;
          }
          if (ledger.reserve(`r${i}`, amount, 0).type === "reserved")
            calls.push({ id: `r${i}`, atMs: ledger.nowMs, charged: amount, open: true });
          let inSixtySeconds = 0;
          for (const { atMs, charged } of calls) if (atMs > ledger.nowMs - 60_000) inSixtySeconds += charged;
          expect(inSixtySeconds).toBeLessThanOrEqual(capacity);
        }
        // And it is no stricter for longer than a second beyond.
        ledger.tick(61_000);
        expect(ledger.reserve("last", capacity, 0).type).toBe("reserved");
        expect(ledger.sameAsFold()).toBe(true);
      }),
      { numRuns: 300, seed: 60 },
    );
  });
});
