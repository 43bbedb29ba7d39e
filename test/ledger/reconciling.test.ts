import { describe, expect, it } from "vitest";
import { reservationOf } from "../../src/ledger/view.ts";
import { bucket, gauge, requests, slots, TestLedger, usage } from "../support/ledger.ts";
import { ledgerWith } from "./steps.ts";

const AGE_MS = 60_000;

/** A frozen lease of 100 in and 400 out, of which so much was seen. */
function frozen(seenTokens = 0, more: Parameters<typeof ledgerWith>[0] = {}): TestLedger {
  const ledger = ledgerWith(more, bucket(1_000, 0), requests(100), slots(10));
  ledger.reserve("a", 100, 400);
  if (seenTokens > 0)
    ledger.run({
      type: "capture",
      requestId: "a",
      fence: 1,
      usageEventId: "1",
      size: usage(100, seenTokens),
    });
  ledger.run({ type: "expire", requestId: "a", cause: "session_lost" });
  return ledger;
}

const takeOver = (ledger: TestLedger) => ledger.run({ type: "take_over", requestId: "a" });
const resolve = (ledger: TestLedger, inputTokens: number, outputTokens: number) =>
  ledger.run({ type: "resolve", requestId: "a", usage: usage(inputTokens, outputTokens) });

describe("take_over", () => {
  it("I7 gives a new fence each time, and older ones are refused", () => {
    const ledger = frozen();
    expect(takeOver(ledger)).toMatchObject({ type: "taken_over", fence: 2 });
    expect(takeOver(ledger)).toMatchObject({ type: "taken_over", fence: 3 });
    const size = usage(100, 1);
    for (const fence of [1, 2, 4]) {
      const on = { requestId: "a", fence };
      for (const command of [
        { type: "capture", usageEventId: "1", size, ...on },
        { type: "settle", usage: size, basis: "under_estimate", ...on },
        { type: "release", evidence: "not_sent", ...on },
        { type: "running", providerRequestId: "p", ...on },
        { type: "dispatch", ...on },
        { type: "top_up", tokens: 1, ...on },
      ] as const)
        expect(ledger.run(command)).toMatchObject({ code: "stale_fence", state: "RECONCILING" });
    }
    expect(ledger.row()).toMatchObject({ level: 500, held: 500 });
    expect(ledger.settle("a", 100, 20, "under_estimate", 3)).toMatchObject({ type: "settled", fence: 3 });
    expect(ledger.sameAsFold()).toBe(true);
  });

  it("the truth is booked whoever brings it", () => {
    const ledger = frozen();
    takeOver(ledger);
    expect(ledger.settle("a", 100, 20, "exact", 1)).toMatchObject({
      type: "settled",
      fence: 2,
      basis: "exact",
    });
  });

  it("moves nothing, and gives the holder no more time", () => {
    const ledger = frozen();
    const before = JSON.stringify([ledger.row(), ledger.row("tenant-slots"), ledger.state.reconcilingTokens]);
    ledger.tick(AGE_MS / 2);
    takeOver(ledger);
    expect(JSON.stringify([ledger.row(), ledger.row("tenant-slots"), ledger.state.reconcilingTokens])).toBe(
      before,
    );
    ledger.tick(AGE_MS / 2);
    expect(ledger.sweep()).toMatchObject([{ type: "settled", basis: "charge_hold", fence: 2 }]);
  });

  it("is of frozen leases alone", () => {
    const ledger = new TestLedger(bucket(1_000, 0));
    expect(takeOver(ledger)).toMatchObject({ code: "unknown_reservation" });
    ledger.reserve("a", 1, 1);
    expect(takeOver(ledger)).toMatchObject({ code: "invalid_state", state: "DISPATCHED" });
    ledger.settle("a", 1, 1);
    expect(takeOver(ledger)).toMatchObject({ code: "invalid_state", state: "SETTLED" });
    ledger.run({ type: "release", requestId: "late", fence: null, evidence: "not_sent" });
    expect(ledger.run({ type: "take_over", requestId: "late" })).toMatchObject({
      code: "unknown_reservation",
    });
  });
});

describe("resolve", () => {
  it("by the provider's word settles it exactly, and then it is final", () => {
    const ledger = frozen();
    expect(resolve(ledger, 100, 30)).toMatchObject({ type: "settled", basis: "exact", refundedTokens: 370 });
    expect(ledger.row()).toMatchObject({ level: 870, held: 0, settledTotal: 130 });
    expect(ledger.settle("a", 100, 31)).toMatchObject({ code: "already_settled" });
    expect(resolve(ledger, 100, 30)).toMatchObject({ code: "invalid_state", state: "SETTLED" });
  });

  it("never comes to less than was captured", () => {
    const ledger = frozen(200);
    expect(resolve(ledger, 40, 30)).toMatchObject({ usage: { inputTokens: 100, outputTokens: 200 } });
    expect(ledger.level()).toBe(700);
  });

  it("is of frozen leases alone, and of those that there are", () => {
    const ledger = new TestLedger(bucket(1_000, 0));
    expect(resolve(ledger, 1, 1)).toMatchObject({ code: "unknown_reservation" });
    ledger.reserve("a", 1, 1);
    expect(resolve(ledger, 1, 1)).toMatchObject({ code: "invalid_state" });
  });

  it("by age charges the hold, where tokens are what counts", () => {
    const ledger = frozen(50);
    ledger.tick(AGE_MS - 1);
    expect(ledger.run({ type: "resolve", requestId: "a", usage: null }).type).toBe("unchanged");
    ledger.tick(1);
    expect(ledger.sweep()).toMatchObject([
      {
        type: "settled",
        basis: "charge_hold",
        usage: { inputTokens: 100, outputTokens: 400 },
        refundedTokens: 0,
      },
    ]);
    expect(ledger.row()).toMatchObject({ level: 500, held: 0, settledTotal: 500 });
  });

  it("by age charges what was captured and may be expected, where the policy says so", () => {
    const expectedOf = (seen: number, usual: number[]) => {
      const ledger = frozen(seen, { reconcileCharge: "charge_captured" });
      for (const [i, outputTokens] of usual.entries()) {
        ledger.reserve(`u${i}`, 0, 1);
        ledger.settle(`u${i}`, 0, outputTokens);
      }
      ledger.tick(AGE_MS);
      const [event] = ledger.sweep();
      expect(event).toMatchObject({ type: "settled", basis: "charge_captured", usage: { inputTokens: 100 } });
      return event?.type === "settled" ? event.usage.outputTokens : null;
    };
    expect(expectedOf(0, [])).toBe(0);
    expect(expectedOf(0, [80])).toBe(80);
    expect(expectedOf(50, [80])).toBe(80);
    expect(expectedOf(120, [80])).toBe(120);
    expect(expectedOf(0, [480])).toBe(400); // never more than was held
    expect(expectedOf(450, [480])).toBe(450); // unless it was seen
  });

  it("teaches nothing when nobody could tell", () => {
    const ledger = frozen();
    ledger.tick(AGE_MS);
    ledger.sweep();
    expect(ledger.state.means).toEqual({ stayMs: 0, outputTokens: 0, refundShare: 0 });
  });
});

describe("a correction", () => {
  const guessed = (outputTokens: number) => {
    const ledger = new TestLedger(bucket(1_000, 0), requests(100), slots(10));
    ledger.reserve("a", 100, 400);
    ledger.settle("a", 100, outputTokens, "under_estimate");
    return ledger;
  };

  it("moves the difference up, once, and is final", () => {
    const ledger = guessed(20);
    expect(ledger.settle("a", 100, 300)).toMatchObject({
      type: "corrected",
      deltaTokens: 280,
      moves: [{ limit: "tenant-tokens", returned: 0, spent: 280, credited: 0 }],
    });
    expect(ledger.row()).toMatchObject({ level: 600, settledTotal: 400, creditedTotal: 0 });
    expect(ledger.settle("a", 100, 300).type).toBe("unchanged");
    expect(ledger.settle("a", 100, 20, "under_estimate").type).toBe("unchanged");
    expect(ledger.settle("a", 100, 301)).toMatchObject({ code: "already_settled" });
    expect(ledger.row()).toMatchObject({ level: 600, settledTotal: 400 });
    expect(ledger.level("tenant-requests")).toBe(99);
    expect(ledger.sameAsFold()).toBe(true);
  });

  it("moves it down, up to the capacity, and the total still only rises", () => {
    const ledger = guessed(300);
    expect(ledger.settle("a", 100, 50)).toMatchObject({ type: "corrected", deltaTokens: -250 });
    expect(ledger.row()).toMatchObject({ level: 850, settledTotal: 400, creditedTotal: 250 });
    const full = new TestLedger(bucket(1_000, 60_000));
    full.reserve("a", 0, 1_000);
    full.settle("a", 0, 1_000, "under_estimate");
    full.tick(60_000);
    full.settle("a", 0, 0);
    expect(full.level()).toBe(1_000);
  });

  it("follows a resolution by age: the late truth counts, up or down", () => {
    for (const [tokens, level] of [
      [450, 450],
      [50, 850],
    ] as const) {
      const ledger = frozen();
      ledger.tick(AGE_MS);
      ledger.sweep();
      expect(ledger.level()).toBe(500);
      expect(ledger.settle("a", 100, tokens)).toMatchObject({ type: "corrected" });
      expect(ledger.level()).toBe(level);
      expect(ledger.settle("a", 100, 1)).toMatchObject({ code: "already_settled" });
    }
  });

  it("of two guesses the first stands", () => {
    const ledger = guessed(20);
    expect(ledger.settle("a", 100, 90, "under_estimate").type).toBe("unchanged");
    expect(ledger.level()).toBe(880);
  });

  it("after an exact settlement there is none", () => {
    const ledger = guessed(20);
    ledger.reserve("b", 10, 10);
    ledger.settle("b", 10, 5);
    expect(ledger.settle("b", 10, 6)).toMatchObject({ code: "already_settled" });
    expect(ledger.settle("b", 10, 6, "under_estimate")).toMatchObject({ code: "already_settled" });
  });
});

describe("a frozen lease", () => {
  it("takes captures, which renew nothing", () => {
    const ledger = frozen();
    const expiresAtMs = reservationOf(ledger.state, "a")?.expiresAtMs;
    ledger.tick(AGE_MS / 2);
    expect(
      ledger.run({ type: "capture", requestId: "a", fence: 1, usageEventId: "9", size: usage(100, 250) }),
    ).toMatchObject({ type: "captured", expiresAtMs });
    expect(reservationOf(ledger.state, "a")).toMatchObject({
      state: "RECONCILING",
      capturedTokens: 350,
      expiresAtMs,
    });
    expect(ledger.run({ type: "running", requestId: "a", fence: 1, providerRequestId: "p" })).toMatchObject({
      expiresAtMs,
    });
    ledger.tick(AGE_MS / 2);
    expect(ledger.sweep()).toMatchObject([{ type: "settled", basis: "charge_hold" }]);
  });

  it("keeps its tokens held and frees its slot and what was in flight", () => {
    const ledger = ledgerWith(
      {},
      bucket(1_000, 0),
      slots(1),
      gauge("in_flight_tokens", 500, { name: "flight" }),
    );
    ledger.reserve("a", 100, 400);
    ledger.run({ type: "capture", requestId: "a", fence: 1, usageEventId: "1", size: usage(100, 100) });
    ledger.run({ type: "expire", requestId: "a", cause: "session_lost" });
    expect([ledger.level(), ledger.level("tenant-slots"), ledger.level("flight")]).toEqual([500, 1, 500]);
    expect([ledger.state.reconcilingTokens, ledger.state.inFlightTokens]).toEqual([500, 0]);
    ledger.settle("a", 100, 100);
    expect([ledger.level(), ledger.level("tenant-slots"), ledger.level("flight")]).toEqual([800, 1, 500]);
    expect([ledger.state.reconcilingTokens, ledger.state.inFlightTokens]).toEqual([0, 0]);
  });

  it("SET-06 a loop of early hang-ups is refused before long: what was seen is charged", () => {
    const ledger = new TestLedger(bucket(50_000, 0));
    let rounds = 0;
    for (; ledger.reserve(`r${rounds}`, 10_000, 0).type === "reserved"; rounds += 1)
      ledger.settle(`r${rounds}`, 10_000, 1, "under_estimate");
    expect(rounds).toBe(4);
  });
});
