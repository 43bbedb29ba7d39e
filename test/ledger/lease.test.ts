import { describe, expect, it } from "vitest";
import { CLOSED_KEPT_MAX, CLOSED_KEPT_MS, SWEEP_LEASES_MAX } from "../../src/ledger/bounds.ts";
import { nextDueAtMs } from "../../src/ledger/turn.ts";
import { reservationOf } from "../../src/ledger/view.ts";
import { bucket, gauge, policyOf, requests, slots, TestLedger, usage } from "../support/ledger.ts";

const fresh = () => new TestLedger(bucket(1_000, 0), requests(100), slots(10));

describe("settle", () => {
  it("gives back hold minus actual, and only that", () => {
    const ledger = fresh();
    ledger.reserve("a", 300, 100);
    expect(ledger.settle("a", 310, 40)).toMatchObject({
      type: "settled",
      basis: "exact",
      refundedTokens: 50,
      overrunTokens: 0,
    });
    expect(ledger.row()).toMatchObject({ level: 650, held: 0, settledTotal: 350 });
    expect(ledger.row("tenant-requests")).toMatchObject({ level: 99, held: 0, settledTotal: 1 });
    expect(ledger.level("tenant-slots")).toBe(10);
  });

  it("I5 SET-12 charges an overrun below zero, and refills out of the debt", () => {
    const ledger = new TestLedger(bucket(500, 60));
    ledger.reserve("a", 100, 400);
    expect(ledger.settle("a", 100, 8_900)).toMatchObject({ overrunTokens: 8_500 });
    expect(ledger.row()).toMatchObject({ level: -8_500, debt: 8_500 });
    expect(ledger.reserve("b", 1, 0)).toMatchObject({
      code: "tokens_exhausted",
      available: 0,
      retryAfterMs: 8_501_000,
    });
    ledger.tick(8_501_000);
    expect(ledger.reserve("b", 1, 0).type).toBe("reserved");
  });

  it("I5 a refund stops at capacity, and says what it lost", () => {
    const ledger = new TestLedger(bucket(1_000, 60_000));
    ledger.reserve("a", 0, 1_000);
    ledger.tick(500); // refills 500 while held
    expect(ledger.settle("a", 0, 100)).toMatchObject({
      moves: [{ returned: 1_000, spent: 100, forfeitedLevel: 400 * 60_000 }],
    });
    expect(ledger.level()).toBe(1_000);
  });

  it("I3 STR-35 answers a repeat like the first, and refuses another amount", () => {
    const ledger = fresh();
    ledger.reserve("a", 300, 100);
    ledger.settle("a", 300, 50);
    expect(ledger.settle("a", 300, 50).type).toBe("unchanged");
    expect(ledger.settle("a", 300, 51)).toMatchObject({ code: "already_settled" });
    expect(ledger.row()).toMatchObject({ level: 650, settledTotal: 350 });
  });

  it("books usage that arrives after the hold was given back", () => {
    const ledger = fresh();
    ledger.reserve("a", 100, 100, { dispatch: false });
    ledger.tick(10_000);
    expect(ledger.sweep()).toMatchObject([{ type: "expired", to: "RELEASED" }]);
    expect(ledger.level()).toBe(1_000);
    expect(ledger.settle("a", 100, 20)).toMatchObject({ type: "settled", overrunTokens: 120 });
    expect(ledger.level()).toBe(880);
  });

  it("refuses a stale fence, but books the exact truth whoever brings it", () => {
    const ledger = fresh();
    ledger.reserve("a", 100, 100);
    expect(ledger.settle("a", 100, 5, "under_estimate", 7)).toMatchObject({ code: "stale_fence" });
    expect(ledger.level()).toBe(800);
    expect(ledger.settle("a", 100, 5, "exact", 7).type).toBe("settled");
  });

  it("books what was used, also of a call that nobody said was sent", () => {
    const ledger = fresh();
    ledger.reserve("a", 100, 100, { dispatch: false });
    expect(ledger.settle("a", 1, 1)).toMatchObject({ type: "settled", refundedTokens: 198 });
    expect(ledger.level()).toBe(998);
    expect(ledger.settle("nobody", 1, 1)).toMatchObject({ code: "unknown_reservation" });
  });

  it("moves nothing for an amount that is not whole", () => {
    const ledger = fresh();
    ledger.reserve("a", 100, 100);
    for (const wrong of [Number.NaN, -1, 0.5, Infinity])
      expect(() => ledger.settle("a", wrong, 1)).toThrow(RangeError);
    expect(ledger.level()).toBe(800);
  });
});

describe("release", () => {
  it("gives back whole what never left", () => {
    const ledger = fresh();
    ledger.reserve("a", 100, 100, { dispatch: false });
    expect(ledger.run({ type: "release", requestId: "a", fence: 1, evidence: null })).toMatchObject({
      evidence: "never_sent",
    });
    expect([ledger.level(), ledger.level("tenant-requests"), ledger.level("tenant-slots")]).toEqual([
      1_000, 100, 10,
    ]);
    expect(ledger.run({ type: "release", requestId: "a", fence: 1, evidence: null }).type).toBe("unchanged");
    expect(ledger.level()).toBe(1_000);
  });

  it("I6 a lease that was dispatched is never released without evidence", () => {
    const ledger = fresh();
    ledger.reserve("a", 100, 100);
    expect(ledger.run({ type: "release", requestId: "a", fence: 1, evidence: null })).toMatchObject({
      code: "invalid_state",
    });
    expect(ledger.level()).toBe(800);
  });

  it("SET-13 SET-15 a provider's refusal gives the tokens back and keeps the request unit", () => {
    const ledger = fresh();
    ledger.reserve("a", 100, 100);
    ledger.run({ type: "release", requestId: "a", fence: 1, evidence: "provider_refused" });
    expect([ledger.level(), ledger.level("tenant-requests"), ledger.level("tenant-slots")]).toEqual([
      1_000, 99, 10,
    ]);
    expect(ledger.row("tenant-requests")).toMatchObject({ held: 0, settledTotal: 1 });
  });

  it("needs no evidence to be believed twice: once captured, a call is settled, not released", () => {
    const ledger = fresh();
    ledger.reserve("a", 100, 100);
    ledger.run({
      type: "capture",
      requestId: "a",
      fence: 1,
      usageEventId: "1",
      size: { inputTokens: 100, outputTokens: 1 },
    });
    expect(
      ledger.run({ type: "release", requestId: "a", fence: 1, evidence: "provider_refused" }),
    ).toMatchObject({ code: "invalid_state" });
  });

  it("I6 believes evidence about a frozen lease too, unless something was captured", () => {
    const ledger = fresh();
    for (const id of ["a", "b"]) ledger.reserve(id, 100, 100);
    ledger.run({ type: "capture", requestId: "b", fence: 1, usageEventId: "1", size: usage(100, 1) });
    for (const id of ["a", "b"]) ledger.run({ type: "expire", requestId: id, cause: "session_lost" });
    expect(ledger.run({ type: "release", requestId: "a", fence: null, evidence: "not_sent" }).type).toBe(
      "released",
    );
    expect(ledger.run({ type: "release", requestId: "b", fence: null, evidence: "not_sent" })).toMatchObject({
      code: "invalid_state",
    });
    expect([ledger.level(), ledger.level("tenant-requests"), ledger.level("tenant-slots")]).toEqual([
      800, 99, 10,
    ]);
  });

  it("spends the request unit of a call once, even if usage turns up after its refusal", () => {
    const ledger = fresh();
    ledger.reserve("a", 100, 100);
    ledger.run({ type: "release", requestId: "a", fence: 1, evidence: "provider_refused" });
    ledger.settle("a", 100, 5);
    expect([ledger.level(), ledger.level("tenant-requests")]).toEqual([895, 99]);
  });

  it("closes an id before its reserve arrives, and the late reserve finds it closed", () => {
    const ledger = fresh();
    expect(ledger.run({ type: "release", requestId: "late", fence: null, evidence: "not_sent" }).type).toBe(
      "forestalled",
    );
    expect(ledger.reserve("late", 100, 100)).toMatchObject({ code: "invalid_state" });
    expect(ledger.settle("late", 5, 5)).toMatchObject({ code: "unknown_reservation" });
    expect(ledger.level()).toBe(1_000);
  });
});

describe("capture", () => {
  const capture = (ledger: TestLedger, usageEventId: string, outputTokens: number) =>
    ledger.run({
      type: "capture",
      requestId: "a",
      fence: 1,
      usageEventId,
      size: { inputTokens: 100, outputTokens },
    });

  it("takes running totals: a repeat or an older total changes nothing", () => {
    const ledger = fresh();
    ledger.reserve("a", 100, 100);
    capture(ledger, "1", 10);
    capture(ledger, "2", 30);
    expect(capture(ledger, "2", 30).type).toBe("unchanged");
    expect(capture(ledger, "1b", 20)).toMatchObject({ captured: { outputTokens: 30 } });
    expect(reservationOf(ledger.state, "a")).toMatchObject({
      state: "PARTIALLY_SETTLED",
      capturedTokens: 130,
      heldTokens: 200,
    });
    expect(ledger.level()).toBe(800);
  });

  it("renews the lease, even when nothing moved", () => {
    const ledger = fresh();
    ledger.reserve("a", 100, 100);
    for (let i = 0; i < 10; i += 1) {
      ledger.tick(9_000);
      expect(
        ledger.run({ type: "capture", requestId: "a", fence: 1, usageEventId: `c${i}`, size: usage(0, 0) })
          .type,
      ).toBe("captured");
    }
    expect(reservationOf(ledger.state, "a")).toMatchObject({ state: "DISPATCHED" });
  });

  it("empties the in-flight gauge as output is produced; a bucket's level waits for the settlement", () => {
    const ledger = new TestLedger(bucket(1_000, 0), gauge("in_flight_tokens", 500, { name: "flight" }));
    ledger.reserve("a", 100, 100);
    capture(ledger, "1", 40);
    expect([ledger.level(), ledger.level("flight")]).toEqual([800, 440]);
    capture(ledger, "2", 400); // beyond the hold
    expect(ledger.level("flight")).toBe(500);
    ledger.settle("a", 100, 400);
    expect([ledger.level(), ledger.level("flight")]).toEqual([500, 500]);
  });
});

describe("expire", () => {
  it("I6 freezes what may have been sent, frees its slot, and leaves its level", () => {
    const ledger = fresh();
    ledger.reserve("a", 100, 100);
    ledger.tick(9_999);
    expect(ledger.sweep()).toEqual([]);
    ledger.tick(1);
    expect(ledger.sweep()).toMatchObject([{ type: "expired", to: "RECONCILING", cause: "deadline" }]);
    expect([ledger.level(), ledger.row().held, ledger.level("tenant-slots")]).toEqual([800, 200, 10]);
    expect(ledger.settle("a", 100, 20)).toMatchObject({ type: "settled", refundedTokens: 80 });
    expect([ledger.level(), ledger.row().held, ledger.level("tenant-slots")]).toEqual([880, 0, 10]);
  });

  it("charges the hold of what nobody could reconcile in time, never less than was captured", () => {
    const ledger = fresh();
    ledger.reserve("a", 100, 100);
    ledger.run({ type: "capture", requestId: "a", fence: 1, usageEventId: "1", size: usage(100, 150) });
    ledger.tick(10_000);
    ledger.sweep();
    ledger.tick(60_000);
    expect(ledger.sweep()).toMatchObject([
      { type: "settled", basis: "charge_hold", usage: { inputTokens: 100, outputTokens: 150 } },
    ]);
    expect(ledger.level()).toBe(750);
  });

  it("happens at once when a session is lost, and leaves a settled lease alone", () => {
    const ledger = fresh();
    ledger.reserve("a", 100, 100);
    ledger.reserve("b", 100, 100);
    ledger.settle("b", 100, 10);
    expect(ledger.run({ type: "expire", requestId: "a", cause: "session_lost" })).toMatchObject({
      to: "RECONCILING",
    });
    expect(ledger.run({ type: "expire", requestId: "b", cause: "session_lost" }).type).toBe("unchanged");
  });

  it("sweeps in deadline order, renewed leases last, a bounded number a turn", () => {
    const ledger = new TestLedger(bucket(1_000_000, 0));
    for (let i = 0; i < 3 * SWEEP_LEASES_MAX; i += 1) ledger.reserve(`r${i}`, 1, 1);
    ledger.tick(5_000);
    ledger.run({ type: "running", requestId: "r0", fence: 1, providerRequestId: "p" });
    expect(nextDueAtMs(ledger.state)).toBe(1_010_000);
    ledger.tick(5_000);
    const swept = ledger.sweep();
    expect(swept).toHaveLength(SWEEP_LEASES_MAX);
    expect(swept[0]).toMatchObject({ requestId: "r1" });
    ledger.sweep();
    expect(ledger.sweep()).toHaveLength(SWEEP_LEASES_MAX - 1);
    expect(nextDueAtMs(ledger.state)).toBe(1_015_000);
  });

  it("PLA-08 needs no alarm: the next call sweeps", () => {
    const ledger = new TestLedger(bucket(1_000, 0), slots(1));
    ledger.reserve("a", 1, 1);
    expect(ledger.reserve("b", 1, 1)).toMatchObject({ code: "concurrency_exhausted" });
    ledger.tick(10_000);
    expect(ledger.reserve("b", 1, 1).type).toBe("reserved");
  });
});

describe("time and memory", () => {
  it("I7 LIM-07 time only rises, and refill keeps its fractions", () => {
    const ledger = new TestLedger(bucket(1_000, 7));
    ledger.reserve("a", 1_000, 0);
    ledger.settle("a", 1_000, 0);
    const start = ledger.nowMs;
    const touch = (id: string) => {
      // Reads and writes the level without moving it: a refill that rounds would lose its fraction here.
      ledger.reserve(id, 0, 0);
      return ledger.settle(id, 0, 0);
    };
    for (let second = 1; second <= 60; second += 1) {
      ledger.nowMs = start + second * 1_000;
      touch(`t${second}`);
    }
    expect(ledger.level()).toBe(7);
    ledger.nowMs = start + 7_000; // the clock jumps back
    expect(touch("back")).toMatchObject({ atMs: start + 60_000, stayMs: 0 });
    expect(ledger.level()).toBe(7);
  });

  it("LIM-19 a policy change keeps debt, holds and the refill clock", () => {
    const ledger = new TestLedger(bucket(1_000, 60), slots(2));
    ledger.reserve("a", 1_000, 0);
    ledger.settle("a", 1_500, 0);
    ledger.reserve("never", 1, 0);
    ledger.tick(1_000);
    ledger.run({
      type: "set_policy",
      policy: policyOf([bucket(5_000, 60), slots(5)], { hash: "p2", epoch: 2 }),
    });
    expect(ledger.level()).toBe(-499);
    ledger.run({
      type: "set_policy",
      policy: policyOf([bucket(10, 60), slots(5)], { hash: "p3", epoch: 3 }),
    });
    ledger.run({
      type: "set_policy",
      policy: policyOf([bucket(5_000, 60), slots(1)], { hash: "p4", epoch: 4 }),
    });
    expect([ledger.level(), ledger.level("tenant-slots")]).toEqual([-499, 1]);
    expect(ledger.sameAsFold()).toBe(true);
  });

  it("a limit that goes and comes back is another: holds of the first mint nothing in the second", () => {
    const ledger = new TestLedger(bucket(1_000, 0), slots(2));
    ledger.reserve("a", 100, 100);
    ledger.reserve("b", 100, 100);
    const change = (epoch: number, ...limits: Parameters<typeof policyOf>[0]) =>
      ledger.run({ type: "set_policy", policy: policyOf(limits, { hash: `p${epoch}`, epoch }) });
    change(2, slots(null));
    change(3, bucket(300, 0), slots(2));
    ledger.settle("a", 100, 0);
    ledger.settle("b", 100, 0);
    expect(ledger.row()).toMatchObject({ level: 300, held: 0, settledTotal: 0 });
    expect(ledger.row("tenant-slots")).toMatchObject({ level: 2, held: 0 });
    expect(ledger.sameAsFold()).toBe(true);
  });

  it("forgets closed leases by age and by number", () => {
    const ledger = new TestLedger(bucket(1_000_000, 0));
    for (let i = 0; i < CLOSED_KEPT_MAX + 10; i += 1) {
      ledger.reserve(`r${i}`, 1, 0);
      ledger.settle(`r${i}`, 1, 0);
    }
    expect(ledger.state.closed.length).toBe(CLOSED_KEPT_MAX + 1);
    ledger.tick(CLOSED_KEPT_MS);
    for (let i = 0; i < CLOSED_KEPT_MAX; i += 1) ledger.reserve(`x${i}`, 1, 0);
    expect(ledger.state.closed.length).toBe(0);
  });
});
