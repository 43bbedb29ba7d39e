import { describe, expect, it } from "vitest";
import { ACCEPT_MS, ADMIT_MAX, BATCH_LAG_MS } from "../../src/ledger/bounds.ts";
import { nextWakeAtMs } from "../../src/ledger/waiting.ts";
import type { Limit } from "../../src/policy/limit-schema.ts";
import { bucket, gauge, rolling, scope, slots, TestLedger } from "../support/ledger.ts";
import { admitted, change, ledgerWith, waiting } from "./steps.ts";

const LONG = { leaseTtlMs: 3_600_000 };
const wait = { queueMs: 600_000 };
const batch = { ...wait, class: "batch" } as const;

/** One slot, and somebody in it. */
function busy(): TestLedger {
  const ledger = ledgerWith(LONG, slots(1));
  ledger.reserve("inside", 1, 0);
  return ledger;
}

/** A tokens bucket that does not refill, with so much left in it. */
function withLeft(left: number, ...more: readonly Limit[]): TestLedger {
  const ledger = ledgerWith(LONG, bucket(1_000, 0), ...more);
  ledger.reserve("inside", 1_000 - left, 0);
  return ledger;
}

const leave = (ledger: TestLedger, requestId: string) =>
  ledger.run({ type: "leave", requestId, cause: "caller_left" });

describe("order", () => {
  it("is by class, then arrival, and a batch waiter ranks as one who came thirty seconds later", () => {
    const ledger = busy();
    const came = (id: string, more: object) => expect(ledger.reserve(id, 1, 0, more).type).toBe("queued");
    came("batch 1", batch);
    came("batch 2", batch);
    ledger.tick(1);
    came("first", wait);
    ledger.tick(BATCH_LAG_MS - 2);
    came("just before", wait);
    ledger.tick(2);
    came("just after", wait);
    came("batch 3", batch);
    const order = ["first", "just before", "batch 1", "batch 2", "just after", "batch 3"];
    expect(waiting(ledger)).toEqual(order);
    const served: string[] = [];
    for (let last = "inside"; served.length < order.length; last = served.at(-1) ?? "") {
      ledger.tick(10);
      if (last !== "inside") ledger.run({ type: "dispatch", requestId: last, fence: 1 });
      ledger.settle(last, 1, 0);
      served.push(admitted(ledger).at(-1) ?? "");
    }
    expect(served).toEqual(order);
  });

  it("a waiter has been promised nothing: it holds nothing, and no record tells of it", () => {
    const ledger = busy();
    const before = ledger.record.length;
    expect(ledger.reserve("w", 70, 7, wait)).toMatchObject({
      type: "queued",
      limit: "tenant-slots",
      hold: { inputTokens: 70, outputTokens: 7 },
      deadlineAtMs: ledger.nowMs + 600_000,
    });
    expect(ledger.row("tenant-slots").held).toBe(1);
    expect(ledger.state.queue.tokens).toBe(77);
    expect(ledger.record.length).toBe(before);
    expect(ledger.reserve("w", 70, 7, wait)).toMatchObject({ type: "unchanged", state: "PROPOSED" });
    expect(waiting(ledger)).toEqual(["w"]);
  });
});

describe("head of line", () => {
  it("LIM-14 a large one at the head is not passed by small ones, and frees them when it leaves", () => {
    const ledger = withLeft(900);
    expect(ledger.reserve("head", 1_000, 0, wait).type).toBe("queued");
    expect(ledger.reserve("next", 10, 0, wait).type).toBe("queued");
    ledger.sweep();
    expect(waiting(ledger)).toEqual(["head", "next"]);
    leave(ledger, "head");
    expect(admitted(ledger).at(-1)).toBe("next");
    expect(waiting(ledger)).toEqual([]);
    expect([ledger.level(), ledger.state.queue.tokens]).toEqual([890, 0]);
  });

  it("LIM-14 what a leaver frees is never lost, wherever it stood", () => {
    const ledger = withLeft(0);
    for (const id of ["a", "b", "c"]) ledger.reserve(id, 500, 0, wait);
    leave(ledger, "b");
    ledger.settle("inside", 0, 0);
    expect(admitted(ledger)).toEqual(["inside", "a", "c"]);
    expect(leave(ledger, "b").type).toBe("unchanged");
  });

  it("a newcomer does not overtake who waits for a limit that it needs, though it would fit", () => {
    const ledger = withLeft(900);
    ledger.reserve("head", 1_000, 0, wait);
    expect(ledger.reserve("newcomer", 10, 0)).toMatchObject({
      code: "tokens_exhausted",
      limit: "tenant-tokens",
      available: 0,
    });
    expect(ledger.level()).toBe(900);
  });

  it("but passes those that wait for another model's", () => {
    const model = (name: string) => ({ ...wait, scope: { ...scope, model: name } });
    const perModel = bucket(100, 0, { name: "model", per: ["model"] });
    const ledger = withLeft(1_000, perModel);
    ledger.reserve("full", 90, 0, model("a"));
    expect(ledger.reserve("waits", 20, 0, model("a")).type).toBe("queued");
    expect(ledger.reserve("behind", 5, 0, model("a")).type).toBe("queued");
    expect(ledger.reserve("other", 20, 0, model("b")).type).toBe("reserved");
  });

  it("a waiter passes who waits for another model's as well", () => {
    const model = (name: string) => ({ ...wait, scope: { ...scope, model: name } });
    const ledger = ledgerWith(LONG, bucket(100, 0, { name: "model", per: ["model"] }));
    for (const name of ["a", "b"]) ledger.reserve(`full ${name}`, 100, 0, model(name));
    ledger.reserve("a1", 50, 0, model("a"));
    ledger.reserve("b1", 50, 0, model("b"));
    ledger.reserve("a2", 1, 0, model("a"));
    ledger.settle("full b", 0, 0);
    expect(admitted(ledger).at(-1)).toBe("b1");
    expect(waiting(ledger)).toEqual(["a1", "a2"]);
  });

  it("an interactive newcomer passes a batch that came less than its lag before", () => {
    const ledger = ledgerWith(LONG, bucket(1_000, 0));
    ledger.reserve("inside", 900, 0);
    ledger.reserve("bulk", 500, 0, batch);
    ledger.tick(BATCH_LAG_MS - 1);
    expect(ledger.reserve("first", 10, 0).type).toBe("reserved");
    ledger.tick(2);
    expect(ledger.reserve("second", 10, 0).type).toBe("refused");
  });
});

describe("admission out of the queue", () => {
  it("one release admits many", () => {
    const ledger = withLeft(0);
    for (let i = 0; i < 10; i += 1) ledger.reserve(`w${i}`, 100, 0, wait);
    ledger.settle("inside", 0, 0);
    expect(waiting(ledger)).toEqual([]);
    expect(admitted(ledger)).toHaveLength(11);
    expect(ledger.level()).toBe(0);
  });

  it("a bounded number at a time, and the rest with the next call", () => {
    const ledger = ledgerWith(LONG, bucket(1_000, 0), slots(1));
    ledger.reserve("inside", 0, 0);
    for (let i = 0; i < 3 * ADMIT_MAX; i += 1) ledger.reserve(`w${i}`, 1, 0, wait);
    change(ledger, [bucket(1_000, 0)], LONG);
    const left = waiting(ledger).length;
    expect(left).toBeGreaterThanOrEqual(ADMIT_MAX);
    expect(nextWakeAtMs(ledger.state, ledger.nowMs)).toBe(ledger.nowMs);
    for (let i = 0; i < 3; i += 1) ledger.sweep();
    expect(waiting(ledger)).toEqual([]);
  });

  it("is RESERVED, must be taken up within five seconds, and goes back whole if it is not", () => {
    const ledger = busy();
    ledger.reserve("w", 30, 10, wait);
    ledger.tick(1_500);
    ledger.settle("inside", 1, 0);
    const granted = ledger.record.at(-1);
    expect(granted).toMatchObject({
      type: "reserved",
      requestId: "w",
      state: "RESERVED",
      waitedMs: 1_500,
      ttlMs: LONG.leaseTtlMs,
      expiresAtMs: ledger.nowMs + ACCEPT_MS,
    });
    ledger.tick(ACCEPT_MS - 1);
    expect(ledger.sweep()).toEqual([]);
    ledger.tick(1);
    expect(ledger.sweep()).toMatchObject([{ type: "expired", to: "RELEASED", requestId: "w" }]);
    expect(ledger.row("tenant-slots")).toMatchObject({ level: 1, held: 0 });
    expect(ledger.run({ type: "dispatch", requestId: "w", fence: 1 })).toMatchObject({
      code: "invalid_state",
    });
  });

  it("lives for its whole time once it is dispatched", () => {
    const ledger = busy();
    ledger.reserve("w", 30, 10, wait);
    ledger.settle("inside", 1, 0);
    ledger.tick(ACCEPT_MS - 1);
    expect(ledger.run({ type: "dispatch", requestId: "w", fence: 1 })).toMatchObject({
      expiresAtMs: ledger.nowMs + LONG.leaseTtlMs,
    });
    ledger.tick(2 * ACCEPT_MS);
    expect(ledger.sweep()).toEqual([]);
  });

  it("of a caller who makes the call itself has the lease's own time", () => {
    const ledger = busy();
    ledger.reserve("w", 30, 10, { ...wait, dispatch: false });
    ledger.settle("inside", 1, 0);
    expect(ledger.record.at(-1)).toMatchObject({ expiresAtMs: ledger.nowMs + LONG.leaseTtlMs });
  });

  it("comes by refill alone, and the ledger knows when", () => {
    const ledger = ledgerWith(LONG, bucket(1_000, 600));
    ledger.reserve("inside", 1_000, 0);
    expect(ledger.reserve("w", 100, 0, wait)).toMatchObject({ type: "queued", predictedWaitMs: 10_000 });
    expect(nextWakeAtMs(ledger.state, ledger.nowMs)).toBe(ledger.nowMs + 10_000);
    ledger.tick(9_999);
    expect(ledger.sweep()).toEqual([]);
    ledger.tick(1);
    expect(ledger.sweep()).toMatchObject([{ type: "reserved", requestId: "w", waitedMs: 10_000 }]);
    expect(nextWakeAtMs(ledger.state, ledger.nowMs)).toBeNull();
  });
});

describe("what is not let in to wait", () => {
  it("LIM-13 is sent away when the queue is full, by number", () => {
    const ledger = ledgerWith({ ...LONG, queue: { lengthMax: 2, tokensMax: null } }, slots(1));
    ledger.reserve("inside", 1, 0);
    expect(ledger.reserve("a", 1, 0, wait).type).toBe("queued");
    expect(ledger.reserve("b", 1, 0, wait).type).toBe("queued");
    expect(ledger.reserve("c", 1, 0, wait)).toMatchObject({ code: "queue_full", limit: "tenant-slots" });
    leave(ledger, "a");
    expect(ledger.reserve("c", 1, 0, wait).type).toBe("queued");
  });

  it("LIM-13 or by tokens", () => {
    const ledger = ledgerWith({ ...LONG, queue: { lengthMax: 100, tokensMax: 1_000 } }, slots(1));
    ledger.reserve("inside", 1, 0);
    expect(ledger.reserve("a", 500, 400, wait).type).toBe("queued");
    expect(ledger.reserve("b", 100, 1, wait)).toMatchObject({ code: "queue_full" });
    expect(ledger.reserve("c", 100, 0, wait).type).toBe("queued");
  });

  it("whoever would be served too late is told so at once, and when", () => {
    const ledger = ledgerWith(LONG, bucket(1_000, 600));
    ledger.reserve("inside", 1_000, 0);
    expect(ledger.reserve("a", 100, 0, { queueMs: 10_000 }).type).toBe("queued");
    // Behind the first: 200 tokens at ten a second.
    expect(ledger.reserve("b", 100, 0, { queueMs: 19_999 })).toMatchObject({
      code: "slo_infeasible",
      retryAfterMs: 20_000,
    });
    expect(ledger.reserve("b", 100, 0, { queueMs: 20_000 }).type).toBe("queued");
  });

  it("forecasts from what the calls inside give back", () => {
    const ledger = ledgerWith(LONG, slots(2));
    ledger.reserve("first", 1, 0);
    ledger.tick(8_000);
    ledger.settle("first", 1, 0);
    for (const id of ["a", "b"]) ledger.reserve(id, 1, 0);
    // Two inside for eight seconds each: one ends every four.
    expect(ledger.reserve("c", 1, 0, { queueMs: 3_999 })).toMatchObject({ code: "slo_infeasible" });
    expect(ledger.reserve("c", 1, 0, { queueMs: 4_000 })).toMatchObject({ predictedWaitMs: 4_000 });
    expect(ledger.reserve("d", 1, 0, { queueMs: 8_000 })).toMatchObject({ predictedWaitMs: 8_000 });
  });

  it.each([
    ["too large", [bucket(1_000, 60)], 1_001, "request_too_large"],
    ["denied", [slots(0)], 1, "concurrency_exhausted"],
    ["spent for good", [bucket(1_000, 0)], 1_000, "tokens_exhausted"],
  ] as const)("LIM-08 what can never be true is refused at once: %s", (_, limits, tokens, code) => {
    const ledger = new TestLedger(...limits);
    ledger.reserve("spent", 1_000, 0);
    ledger.settle("spent", 1_000, 0);
    const refused = ledger.reserve("a", tokens, 0, wait);
    expect(refused).toMatchObject({ code });
    if (code !== "request_too_large") expect(refused).toMatchObject({ retryAfterMs: null });
  });

  it("waits for a rolling limit's second to pass", () => {
    const ledger = ledgerWith(LONG, rolling(100));
    ledger.reserve("a", 100, 0);
    expect(ledger.reserve("b", 50, 0, wait)).toMatchObject({ type: "queued", predictedWaitMs: 61_000 });
  });

  it("whoever waits for room beyond a gauge goes alone", () => {
    const ledger = ledgerWith(LONG, gauge("in_flight_tokens", 1_000, { name: "flight" }));
    ledger.reserve("inside", 600, 0);
    expect(ledger.reserve("huge", 5_000, 0, wait).type).toBe("queued");
    expect(ledger.reserve("small", 10, 0, wait).type).toBe("queued");
    ledger.settle("inside", 600, 0);
    expect(admitted(ledger)).toEqual(["inside", "huge"]);
    ledger.run({ type: "release", requestId: "huge", fence: 1, evidence: null });
    expect(admitted(ledger)).toEqual(["inside", "huge", "small"]);
  });
});

describe("deadlines", () => {
  it("send away whoever still waits at theirs, with the evidence and the time it waited", () => {
    const ledger = busy();
    ledger.reserve("w", 1, 0, { queueMs: 7_000 });
    expect(nextWakeAtMs(ledger.state, ledger.nowMs)).toBe(ledger.nowMs + 7_000);
    ledger.tick(6_999);
    expect(ledger.sweep()).toEqual([]);
    ledger.tick(1);
    expect(ledger.sweep()).toMatchObject([
      { type: "refused", code: "deadline_exceeded", requestId: "w", limit: "tenant-slots", waitedMs: 7_000 },
    ]);
    expect(waiting(ledger)).toEqual([]);
    expect(ledger.sweep()).toEqual([]);
  });

  it("are looked at in whatever order they come", () => {
    const ledger = busy();
    for (const [id, queueMs] of [
      ["late", 9_000],
      ["soon", 1_000],
      ["later", 5_000],
    ] as const)
      ledger.reserve(id, 1, 0, { queueMs });
    ledger.tick(1_000);
    expect(ledger.sweep()).toMatchObject([{ requestId: "soon" }]);
    ledger.tick(4_000);
    expect(ledger.sweep()).toMatchObject([{ requestId: "later" }]);
    ledger.tick(4_000);
    expect(ledger.sweep()).toMatchObject([{ requestId: "late" }]);
  });

  it("free those behind: a head that is gone holds nobody back", () => {
    const ledger = withLeft(900);
    ledger.reserve("head", 1_000, 0, { queueMs: 1_000 });
    ledger.reserve("next", 10, 0, wait);
    ledger.tick(1_000);
    expect(ledger.sweep().map(({ type }) => type)).toEqual(["refused", "reserved"]);
  });

  it("nobody is admitted past theirs, even if room comes in the same call", () => {
    const ledger = busy();
    ledger.reserve("w", 1, 0, { queueMs: 1_000 });
    ledger.tick(1_001);
    ledger.settle("inside", 1, 0);
    expect(admitted(ledger)).toEqual(["inside"]);
  });
});
