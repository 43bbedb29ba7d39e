/** Where two rules meet: what each test here says was once otherwise. */
import { describe, expect, it } from "vitest";
import { CLOSED_KEPT_MS } from "../../src/ledger/bounds.ts";
import type { Idempotency } from "../../src/ledger/commands.ts";
import { restore, snapshot } from "../../src/ledger/snapshot.ts";
import { isRecorded, isRider } from "../../src/ledger/types.ts";
import { nextWakeAtMs } from "../../src/ledger/waiting.ts";
import { bucket, calendar, gauge, rolling, slots, TestLedger } from "../support/ledger.ts";
import { admitted, change, ledgerWith, waiting } from "./steps.ts";

const LONG = { leaseTtlMs: 3_600_000 };
const key = (digest: string, repeat: Idempotency["repeat"]) => ({
  idempotency: { key: "k", digest, repeat },
});
const flight = gauge("in_flight_tokens", 3_733, { name: "flight" });

const running = (ledger: TestLedger, requestId: string) =>
  ledger.run({ type: "running", requestId, fence: 1, providerRequestId: "p" });

describe("idempotency", () => {
  it("a waiter that leaves gives its key back to the lease that had it", () => {
    const ledger = new TestLedger(slots(1));
    ledger.reserve("a", 1, 0, key("d", "new_attempt"));
    ledger.settle("a", 1, 0);
    ledger.reserve("inside", 1, 0);
    ledger.reserve("b", 1, 0, { queueMs: 5_000, ...key("d", "new_attempt") });
    ledger.run({ type: "leave", requestId: "b", cause: "caller_left" });
    // The record tells otherwise: folded().byIdempotencyKey is { k: "a" }.
    expect(ledger.reserve("c", 1, 0, key("other", "same_lease"))).toMatchObject({
      code: "idempotency_conflict",
    });
  });

  it("of two leases of one key and one millisecond the newer has it after a restart", () => {
    const ledger = new TestLedger(bucket(1_000, 0));
    ledger.reserve("a", 1, 0, key("d", "new_attempt"));
    ledger.settle("a", 1, 0);
    ledger.reserve("b", 1, 0, key("d", "new_attempt"));
    expect(restore(snapshot(ledger.state)).byIdempotencyKey.get("k")).toBe("b");
  });

  it("a release with a fence that came before its reserve is answered alike when repeated", () => {
    const ledger = new TestLedger(bucket(1_000, 0));
    const release = () => ledger.run({ type: "release", requestId: "late", fence: 1, evidence: null });
    expect(release().type).toBe("forestalled");
    expect(release().type).toBe("unchanged");
  });
});

describe("the record", () => {
  it("I6 what makes a lease sent is durable before it is answered: `running` on a RESERVED lease", () => {
    const ledger = new TestLedger(bucket(1_000, 0));
    ledger.reserve("a", 1, 0, { dispatch: false });
    const event = running(ledger, "a");
    // Lost in a crash it leaves a RESERVED lease, which expiry gives back whole.
    expect(event.type === "refused" || (isRecorded(event) && !isRider(event))).toBe(true);
  });
});

describe("a gauge of tokens", () => {
  it("forecasts for a call larger than itself only until it is empty", () => {
    const ledger = ledgerWith(LONG, flight);
    ledger.reserve("a", 1_000, 0);
    ledger.tick(1_000);
    ledger.settle("a", 1_000, 0);
    ledger.reserve("b", 1_000, 0);
    // Alone in a second, when "b" ends; forecast are 10,291 ms.
    expect(ledger.reserve("huge", 12_000, 1_024, { queueMs: 5_000 }).type).toBe("queued");
  });

  it("lets a call that is alone in it go on alone", () => {
    const ledger = ledgerWith(LONG, flight);
    ledger.reserve("huge", 12_000, 1_024);
    running(ledger, "huge");
    expect(ledger.run({ type: "top_up", requestId: "huge", fence: 1, tokens: 10 }).type).toBe("topped_up");
  });
});

describe("a top-up across a window's end", () => {
  it("stays with its lease in the window where that began", () => {
    const ledger = ledgerWith(LONG, calendar(1_000, { name: "w", unit: "tokens", every: "hour" }));
    ledger.nowMs = 3_599_000;
    ledger.reserve("a", 100, 800);
    running(ledger, "a");
    ledger.tick(1_000);
    expect(ledger.run({ type: "top_up", requestId: "a", fence: 1, tokens: 50 })).toMatchObject({
      type: "topped_up",
      charges: [],
    });
    ledger.settle("a", 100, 850);
    expect(ledger.row("w")).toMatchObject({ level: 1_000, held: 0 });
  });
});

describe("the queue", () => {
  it("a call that takes nothing of a limit waits for nobody who lacks it", () => {
    const price = { inputPicoUsd: 1_000, cachedInputPicoUsd: 0, outputPicoUsd: 1_000 };
    const ledger = ledgerWith(LONG, calendar(1_000, { every: "hour" }));
    ledger.nowMs = 3_595_000;
    ledger.reserve("a", 1_000, 0, { price });
    expect(ledger.reserve("b", 500, 0, { price, queueMs: 10_000 }).type).toBe("queued");
    expect(ledger.reserve("without a price", 500, 0).type).toBe("reserved");
  });

  it("LIM-08 a waiter that a new policy makes too large is sent away, and holds nobody back", () => {
    const ledger = ledgerWith(LONG, bucket(1_000, 600));
    ledger.reserve("a", 1_000, 0);
    ledger.reserve("large", 900, 0, { queueMs: 120_000 });
    ledger.reserve("small", 10, 0, { queueMs: 120_000 });
    change(ledger, [bucket(500, 600)], LONG);
    ledger.tick(100_000);
    ledger.sweep();
    expect(waiting(ledger)).toEqual([]);
    expect(admitted(ledger)).toEqual(["a", "small"]);
  });

  it("a newcomer does not overtake waiters that fit but were too many for one call", () => {
    const ledger = ledgerWith(LONG, bucket(1_000, 0));
    ledger.reserve("inside", 1_000, 0);
    for (let i = 0; i < 200; i += 1) ledger.reserve(`w${i}`, 5, 0, { queueMs: 60_000 });
    ledger.settle("inside", 0, 0); // lets 64 in; the next call's sweep another 64
    expect(ledger.reserve("newcomer", 360, 0).type).toBe("refused");
  });

  it("a rolling limit's forecast sees past the calls ahead", () => {
    const ledger = ledgerWith(LONG, rolling(100));
    ledger.reserve("a", 100, 0);
    ledger.reserve("b", 60, 0, { queueMs: 600_000 });
    // Served in two minutes; is refused as exhausted, with a retry after 61 seconds that does not hold.
    expect(ledger.reserve("c", 60, 0, { queueMs: 600_000 }).type).toBe("queued");
  });

  it("a batch that has waited long does not close the room below its floor to interactive calls", () => {
    const ledger = ledgerWith(LONG, bucket(1_000, 60, { batchFloor: 0.5 }));
    ledger.reserve("a", 500, 0);
    ledger.reserve("bulk", 300, 0, { class: "batch", queueMs: 600_000 });
    ledger.tick(30_001);
    ledger.sweep();
    expect(ledger.level()).toBeGreaterThan(500);
    expect(ledger.reserve("interactive", 10, 0).type).toBe("reserved");
  });
});

describe("a forecast", () => {
  const price = { inputPicoUsd: 1_000, cachedInputPicoUsd: 1_000, outputPicoUsd: 1_000 };
  const counted = { name: "counted", unit: "requests", every: "hour" } as const;

  it.each([
    ["one that it takes nothing of", calendar(1_000, { every: "week" })],
    ["one that only tells", calendar(10, { ...counted, stop: "never" })],
    ["one that only what is spent fills", calendar(10, { ...counted, stop: "spent" })],
  ])("does not wait for the next window of %s behind those who do", (_which, window) => {
    const ledger = new TestLedger(bucket(100, 6_000), window);
    ledger.reserve("inside", 100, 0);
    const asking = window.unit === "nano_usd" ? { price } : {};
    expect(ledger.reserve("ahead", 100, 0, { ...asking, queueMs: 20_000 }).type).toBe("queued");
    expect(ledger.reserve("newcomer", 10, 0, { queueMs: 20_000 })).toMatchObject({
      type: "queued",
      limit: "tenant-tokens",
      predictedWaitMs: 1_100,
    });
  });

  it("is looked at again when the first of what is lacking is free, for whoever lacks no more", () => {
    const ledger = new TestLedger(
      bucket(100, 6_000, { name: "out", unit: "output_tokens" }),
      bucket(1_000, 600, { name: "money", unit: "nano_usd" }),
    );
    ledger.reserve("inside", 900, 100, { price });
    ledger.reserve("dear", 900, 100, { price, queueMs: 600_000 });
    ledger.reserve("free of charge", 1, 50, { queueMs: 600_000 });
    expect(nextWakeAtMs(ledger.state, ledger.nowMs)).toBe(ledger.nowMs + 1_000);
    ledger.tick(1_000);
    expect(ledger.sweep()).toMatchObject([{ type: "reserved", requestId: "free of charge" }]);
  });
});

it("the queue is looked at again when a batch waiter lacks the floor alone, for it holds back no one else then", () => {
  const ledger = ledgerWith({ leaseTtlMs: 3_600_000 }, bucket(1_000, 60, { batchFloor: 0.5 }));
  const emptyAtMs = ledger.nowMs;
  ledger.reserve("inside", 1_000, 0);
  ledger.reserve("bulk", 500, 0, { class: "batch", queueMs: 3_000_000 });
  ledger.tick(30_001);
  ledger.reserve("interactive", 10, 0, { queueMs: 3_000_000 });
  expect(nextWakeAtMs(ledger.state, ledger.nowMs)).toBe(emptyAtMs + 500_000);
  ledger.nowMs = emptyAtMs + 500_000;
  expect(ledger.sweep()).toMatchObject([{ type: "reserved", requestId: "interactive" }]);
});

it("a batch call that fits above the floor, but behind another, is not told of the floor", () => {
  const ledger = new TestLedger(bucket(1_000, 6_000, { batchFloor: 0.2 }));
  ledger.reserve("inside", 600, 0);
  ledger.reserve("ahead", 300, 0, { class: "batch", queueMs: 20_000 });
  expect(ledger.reserve("newcomer", 100, 0, { class: "batch" })).toMatchObject({
    code: "tokens_exhausted",
    available: 0,
    retryAfterMs: 2_000,
  });
});

describe("what is learnt", () => {
  it("no forecast comes from a stay that ended in waiting for the outcome", () => {
    const ledger = ledgerWith({ leaseTtlMs: 10_000, reconcileAgeMaxMs: CLOSED_KEPT_MS }, slots(1));
    ledger.reserve("a", 1, 0);
    ledger.tick(1_000);
    ledger.settle("a", 1, 0);
    ledger.reserve("lost", 1, 0);
    ledger.tick(10_000);
    ledger.sweep();
    ledger.tick(800_000);
    ledger.settle("lost", 1, 0);
    expect(ledger.state.means.stayMs).toBe(1_000); // is 81,900
  });

  it("no gauge learns from a call that was given back and settled late", () => {
    const ledger = ledgerWith(
      { leaseTtlMs: 10_000 },
      gauge("concurrency", "auto", { name: "calls", allowancePerMinute: 500 }),
    );
    for (let i = 0; i < 50; i += 1) ledger.reserve(`r${i}`, 1, 0, { dispatch: false });
    ledger.tick(10_000);
    for (let i = 0; i < 2; i += 1) ledger.sweep();
    ledger.tick(600_000);
    for (let i = 0; i < 50; i += 1) ledger.settle(`r${i}`, 1, 0);
    expect(ledger.row("calls").capacity).toBeNull(); // is thousands
  });

  it("an auto gauge follows a lower allowance at once", () => {
    const auto = (allowancePerMinute: number) =>
      gauge("concurrency", "auto", { name: "calls", allowancePerMinute });
    const ledger = ledgerWith(LONG, auto(500));
    for (let i = 0; i < 50; i += 1) {
      ledger.reserve(`r${i}`, 1, 0);
      ledger.tick(6_000);
      ledger.settle(`r${i}`, 1, 0);
    }
    change(ledger, [auto(50)], LONG);
    expect(ledger.row("calls").capacity).toBe(4); // is 40 until up to eight more calls have ended
  });
});

describe("what was seen", () => {
  it("SET-06 is charged, however little the last word of a cut call says", () => {
    const ledger = new TestLedger(bucket(1_000, 0));
    ledger.reserve("a", 100, 100);
    ledger.run({
      type: "capture",
      requestId: "a",
      fence: 1,
      usageEventId: "1",
      size: { inputTokens: 100, outputTokens: 50 },
    });
    expect(ledger.settle("a", 0, 0, "under_estimate")).toMatchObject({
      usage: { inputTokens: 100, outputTokens: 50 },
    });
    expect(ledger.level()).toBe(850);
    // The truth is the truth, and comes once.
    expect(ledger.settle("a", 90, 40)).toMatchObject({ type: "corrected", deltaTokens: -20 });
    expect(ledger.level()).toBe(870);
  });

  it("leaves a gauge at once: a top-up during an overrun holds only what is still to come", () => {
    const ledger = ledgerWith(LONG, gauge("in_flight_tokens", 1_000, { name: "flight" }));
    ledger.reserve("a", 100, 100);
    ledger.reserve("other", 10, 0);
    running(ledger, "a");
    ledger.run({
      type: "capture",
      requestId: "a",
      fence: 1,
      usageEventId: "1",
      size: { inputTokens: 100, outputTokens: 300 },
    });
    expect(ledger.row("flight").held).toBe(10);
    ledger.run({ type: "top_up", requestId: "a", fence: 1, tokens: 50 });
    expect(ledger.row("flight").held).toBe(10);
    ledger.run({ type: "top_up", requestId: "a", fence: 1, tokens: 250 });
    expect(ledger.row("flight").held).toBe(110);
  });
});

describe("a debt", () => {
  it("is not in the way of a call that takes nothing", () => {
    const ledger = new TestLedger(bucket(100, 0));
    ledger.reserve("a", 100, 0);
    ledger.settle("a", 200, 0);
    expect(ledger.reserve("counts only", 0, 0).type).toBe("reserved");
    expect(ledger.reserve("takes", 1, 0).type).toBe("refused");
  });
});

describe("a window", () => {
  it("lets only so many wait for its turn as it will have room for", () => {
    const ledger = ledgerWith(LONG, calendar(100, { name: "w", unit: "tokens", every: "hour" }));
    ledger.nowMs = 3_599_000;
    ledger.reserve("inside", 100, 0);
    const told = ["a", "b", "c"].map((id) => ledger.reserve(id, 60, 0, { queueMs: 10_000 }));
    expect(told.map(({ type }) => type)).toEqual(["queued", "refused", "refused"]);
    expect(told[1]).toMatchObject({ code: "slo_infeasible", retryAfterMs: 1_000 + 3_600_000 });
  });
});

it("a lease that is frozen under a shorter age limit does not wait behind those of a longer one", () => {
  const ledger = ledgerWith({ leaseTtlMs: 10_000, reconcileAgeMaxMs: 900_000 }, bucket(1_000, 0));
  ledger.reserve("long", 10, 10);
  ledger.run({ type: "expire", requestId: "long", cause: "session_lost" });
  change(ledger, [bucket(1_000, 0)], { leaseTtlMs: 10_000, reconcileAgeMaxMs: 1_000 });
  ledger.reserve("short", 10, 10);
  ledger.run({ type: "expire", requestId: "short", cause: "session_lost" });
  ledger.tick(2_000);
  expect(ledger.sweep()).toMatchObject([{ type: "settled", requestId: "short", basis: "charge_hold" }]);
});
