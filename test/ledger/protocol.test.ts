import { describe, expect, it } from "vitest";
import { CLOSED_KEPT_MS } from "../../src/ledger/bounds.ts";
import type { Idempotency } from "../../src/ledger/commands.ts";
import { reservationOf } from "../../src/ledger/view.ts";
import { bucket, calendar, gauge, requests, slots, TestLedger, usage } from "../support/ledger.ts";
import { ledgerWith } from "./steps.ts";

const fresh = () => new TestLedger(bucket(1_000, 0), requests(100), slots(10));
const key = (digest: string, repeat: Idempotency["repeat"]) => ({
  idempotency: { key: "k", digest, repeat },
});
const release = (ledger: TestLedger, requestId: string, fence: number | null = null) =>
  ledger.run({ type: "release", requestId, fence, evidence: "not_sent" });

describe("a request's own id", () => {
  it("I3 SET-11 a reserve that comes twice is answered with the one lease", () => {
    const ledger = fresh();
    ledger.reserve("a", 100, 10);
    expect(ledger.reserve("a", 100, 10)).toMatchObject({
      type: "unchanged",
      requestId: "a",
      fence: 1,
      state: "DISPATCHED",
    });
    ledger.settle("a", 100, 5);
    expect(ledger.reserve("a", 100, 10)).toMatchObject({ type: "unchanged", state: "SETTLED" });
    expect(ledger.row()).toMatchObject({ level: 895, held: 0 });
  });
});

describe("an idempotency key", () => {
  it("same_lease: another request of the same body gets the first one's lease, and holds nothing", () => {
    const ledger = fresh();
    ledger.reserve("a", 100, 10, { dispatch: false, ...key("d", "same_lease") });
    expect(ledger.reserve("b", 100, 10, key("d", "same_lease"))).toMatchObject({
      type: "unchanged",
      requestId: "a",
      fence: 1,
      state: "RESERVED",
      hold: { inputTokens: 100, outputTokens: 10 },
    });
    expect(ledger.row().held).toBe(110);
    expect(reservationOf(ledger.state, "b")).toBeNull();
  });

  it("same_lease: is answered alike while the first waits, and when it is over", () => {
    const ledger = ledgerWith({ leaseTtlMs: 600_000 }, slots(1));
    ledger.reserve("inside", 1, 0);
    ledger.reserve("a", 1, 0, { queueMs: 60_000, ...key("d", "same_lease") });
    expect(ledger.reserve("b", 1, 0, key("d", "same_lease"))).toMatchObject({
      requestId: "a",
      state: "PROPOSED",
    });
    ledger.settle("inside", 1, 0);
    ledger.run({ type: "dispatch", requestId: "a", fence: 1 });
    ledger.settle("a", 1, 0);
    expect(ledger.reserve("c", 1, 0, key("d", "same_lease"))).toMatchObject({
      requestId: "a",
      state: "SETTLED",
    });
  });

  it("new_attempt: in progress while the first lives, a lease of its own once that is over", () => {
    const ledger = fresh();
    ledger.reserve("a", 100, 0, key("d", "new_attempt"));
    expect(ledger.reserve("b", 100, 0, key("d", "new_attempt"))).toMatchObject({
      code: "request_in_progress",
      state: "DISPATCHED",
    });
    ledger.run({ type: "expire", requestId: "a", cause: "outcome_unknown" });
    expect(ledger.reserve("b", 100, 0, key("d", "new_attempt"))).toMatchObject({
      code: "request_in_progress",
      state: "RECONCILING",
    });
    ledger.settle("a", 100, 0);
    expect(ledger.reserve("b", 100, 0, key("d", "new_attempt"))).toMatchObject({
      type: "reserved",
      requestId: "b",
    });
    expect(ledger.reserve("c", 100, 0, key("d", "new_attempt"))).toMatchObject({
      code: "request_in_progress",
    });
    expect(ledger.row().held).toBe(100);
  });

  it("new_attempt: who waits in the queue is in progress too", () => {
    const ledger = new TestLedger(slots(1));
    ledger.reserve("inside", 1, 0);
    ledger.reserve("a", 1, 0, { queueMs: 5_000, ...key("d", "new_attempt") });
    const again = () => ledger.reserve("b", 1, 0, key("d", "new_attempt"));
    expect(again()).toMatchObject({ code: "request_in_progress", state: "PROPOSED" });
    ledger.run({ type: "leave", requestId: "a", cause: "caller_left" });
    expect(again()).toMatchObject({ code: "concurrency_exhausted" });
  });

  it("with another body is a conflict, whatever became of the first", () => {
    const ledger = fresh();
    ledger.reserve("a", 100, 0, key("d", "same_lease"));
    for (const repeat of ["same_lease", "new_attempt"] as const)
      expect(ledger.reserve("b", 100, 0, key("other", repeat))).toMatchObject({
        code: "idempotency_conflict",
        state: "DISPATCHED",
      });
    release(ledger, "a");
    expect(ledger.reserve("b", 100, 0, key("other", "new_attempt"))).toMatchObject({
      code: "idempotency_conflict",
      state: "RELEASED",
    });
    expect(ledger.row().held).toBe(0);
  });

  it("is remembered for as long as the settlement's answer, and then is new", () => {
    const ledger = fresh();
    ledger.reserve("a", 100, 0, key("d", "same_lease"));
    ledger.settle("a", 90, 0);
    ledger.tick(CLOSED_KEPT_MS - 1);
    ledger.reserve("other", 1, 0);
    expect(ledger.settle("a", 90, 0).type).toBe("unchanged");
    expect(ledger.reserve("b", 100, 0, key("other", "same_lease"))).toMatchObject({
      code: "idempotency_conflict",
    });
    ledger.tick(1);
    ledger.reserve("another", 1, 0);
    expect(ledger.settle("a", 90, 0)).toMatchObject({ code: "unknown_reservation" });
    expect(ledger.reserve("b", 100, 0, key("other", "same_lease"))).toMatchObject({
      type: "reserved",
      requestId: "b",
    });
  });

  it("a refusal is not remembered", () => {
    const ledger = fresh();
    expect(ledger.reserve("a", 1_001, 0, key("d", "same_lease")).type).toBe("refused");
    expect(ledger.reserve("b", 10, 0, key("other", "same_lease")).type).toBe("reserved");
  });

  it("a closed id stays closed for as long as a settlement's answer", () => {
    const ledger = fresh();
    release(ledger, "late");
    expect(release(ledger, "late")).toMatchObject({ type: "unchanged", state: "RELEASED" });
    ledger.tick(CLOSED_KEPT_MS - 1);
    expect(ledger.reserve("late", 1, 0)).toMatchObject({ code: "invalid_state", state: "RELEASED" });
  });
});

describe("top_up", () => {
  const running = (ledger: TestLedger, outputTokens = 100) => {
    ledger.reserve("a", 100, outputTokens);
    ledger.run({ type: "running", requestId: "a", fence: 1, providerRequestId: "p" });
    return ledger;
  };
  const topUp = (ledger: TestLedger, tokens: number, fence = 1) =>
    ledger.run({ type: "top_up", requestId: "a", fence, tokens });

  it("takes the difference, renews the lease, and is settled as one hold", () => {
    const ledger = running(fresh());
    ledger.tick(5_000);
    expect(topUp(ledger, 300)).toMatchObject({
      type: "topped_up",
      hold: { inputTokens: 100, outputTokens: 400 },
      charges: [{ limit: "tenant-tokens", amount: 300 }],
      expiresAtMs: ledger.nowMs + 10_000,
    });
    expect(ledger.row()).toMatchObject({ level: 500, held: 500 });
    expect(ledger.row("tenant-requests").held).toBe(1);
    expect(ledger.row("tenant-slots").held).toBe(1);
    expect(ledger.settle("a", 100, 350)).toMatchObject({ refundedTokens: 50, overrunTokens: 0 });
    expect(ledger.row()).toMatchObject({ level: 550, held: 0, settledTotal: 450 });
    expect(ledger.sameAsFold()).toBe(true);
  });

  it("I1 captured plus remaining is what was reserved plus what was added", () => {
    const ledger = running(
      new TestLedger(bucket(1_000, 0), gauge("in_flight_tokens", 900, { name: "flight" })),
    );
    ledger.run({ type: "capture", requestId: "a", fence: 1, usageEventId: "1", size: usage(100, 60) });
    topUp(ledger, 200);
    expect(ledger.state.inFlightTokens).toBe(100 + 100 + 200 - 160);
    expect(ledger.row("flight").held).toBe(240);
    expect(reservationOf(ledger.state, "a")).toMatchObject({ heldTokens: 400, capturedTokens: 160 });
    ledger.settle("a", 100, 290);
    expect([ledger.row("flight").held, ledger.state.inFlightTokens]).toEqual([0, 0]);
  });

  it("is for an answer that is coming: RUNNING or PARTIALLY_SETTLED", () => {
    const ledger = fresh();
    const refusedIn = (state: string) =>
      expect(topUp(ledger, 10)).toMatchObject({ code: "invalid_state", state });
    ledger.reserve("a", 100, 100, { dispatch: false });
    refusedIn("RESERVED");
    ledger.run({ type: "dispatch", requestId: "a", fence: 1 });
    refusedIn("DISPATCHED");
    ledger.run({ type: "capture", requestId: "a", fence: 1, usageEventId: "1", size: usage(100, 1) });
    expect(topUp(ledger, 10).type).toBe("topped_up");
    ledger.run({ type: "expire", requestId: "a", cause: "session_lost" });
    refusedIn("RECONCILING");
    ledger.settle("a", 100, 2);
    refusedIn("SETTLED");
    expect(topUp(ledger, 10, 2)).toMatchObject({ code: "stale_fence" });
  });

  it("gets no better terms than a request: room, the class's floor, the route's ceiling", () => {
    const poor = running(fresh());
    poor.reserve("b", 700, 0);
    const before = JSON.stringify([poor.row(), reservationOf(poor.state, "a")]);
    expect(topUp(poor, 101)).toMatchObject({
      code: "tokens_exhausted",
      limit: "tenant-tokens",
      requested: 101,
      available: 100,
      hold: { inputTokens: 100, outputTokens: 201 },
    });
    expect(topUp(poor, 801)).toMatchObject({ code: "request_too_large", requested: 1_001, available: 1_000 });
    expect(JSON.stringify([poor.row(), reservationOf(poor.state, "a")])).toBe(before);
    expect(topUp(poor, 100).type).toBe("topped_up");

    const low = new TestLedger(bucket(1_000, 0, { batchFloor: 0.5 }));
    low.reserve("a", 100, 300, { class: "batch" });
    low.run({ type: "running", requestId: "a", fence: 1, providerRequestId: "p" });
    expect(topUp(low, 100).type).toBe("topped_up");
    expect(topUp(low, 1)).toMatchObject({ code: "request_too_large", available: 500 });

    const capped = new TestLedger(bucket(1_000, 0));
    capped.reserve("a", 100, 100, { perRequestMaxTokens: 250 });
    capped.run({ type: "running", requestId: "a", fence: 1, providerRequestId: "p" });
    expect(topUp(capped, 51)).toMatchObject({
      code: "request_too_large",
      limit: "route:default",
      requested: 251,
      available: 250,
    });
    expect(topUp(capped, 50).type).toBe("topped_up");
  });

  it("says when it fits, and it does", () => {
    const ledger = new TestLedger(bucket(1_000, 600));
    running(ledger, 800);
    expect(topUp(ledger, 100).type).toBe("topped_up");
    ledger.settle("a", 0, 0);
    ledger.reserve("b", 950, 0);
    ledger.run({ type: "running", requestId: "b", fence: 1, providerRequestId: "p" });
    const more = () => ledger.run({ type: "top_up", requestId: "b", fence: 1, tokens: 50 + 1 });
    expect(more()).toMatchObject({ code: "request_too_large" });
    ledger.reserve("c", 50, 0);
    const fits = () => ledger.run({ type: "top_up", requestId: "b", fence: 1, tokens: 50 });
    expect(fits()).toMatchObject({ code: "tokens_exhausted", retryAfterMs: 5_000 });
    ledger.tick(4_999);
    expect(fits().type).toBe("refused");
    ledger.tick(1);
    expect(fits().type).toBe("topped_up");
  });

  it("pays in money what the longer answer may cost", () => {
    const price = { inputPicoUsd: 1_000, cachedInputPicoUsd: 0, outputPicoUsd: 2_500 };
    const ledger = new TestLedger(calendar(1_000));
    ledger.reserve("a", 100, 1, { price });
    ledger.run({ type: "running", requestId: "a", fence: 1, providerRequestId: "p" });
    expect(ledger.row("spend").held).toBe(103);
    topUp(ledger, 1);
    expect(ledger.row("spend").held).toBe(105); // rounded up for the request, not for each part
  });
});

describe("late words", () => {
  it("a settlement after the hold went back is charged once, in full", () => {
    const ledger = fresh();
    ledger.reserve("a", 100, 100);
    release(ledger, "a", 1);
    expect(ledger.level()).toBe(1_000);
    expect(ledger.settle("a", 100, 20)).toMatchObject({ refundedTokens: 0, overrunTokens: 120 });
    expect(ledger.settle("a", 100, 20).type).toBe("unchanged");
    expect(ledger.row()).toMatchObject({ level: 880, held: 0, settledTotal: 120 });
    expect(ledger.row("tenant-requests").level).toBe(99);
    expect(ledger.level("tenant-slots")).toBe(10);
    expect(reservationOf(ledger.state, "a")).toMatchObject({ state: "SETTLED", settledTokens: 120 });
  });

  it("tells an overrun while it happens, and books it as debt at the end", () => {
    const ledger = fresh();
    ledger.reserve("a", 100, 100);
    const capture = (id: string, outputTokens: number) =>
      ledger.run({
        type: "capture",
        requestId: "a",
        fence: 1,
        usageEventId: id,
        size: usage(100, outputTokens),
      });
    expect(capture("1", 100)).toMatchObject({ overrunTokens: 0 });
    expect(capture("2", 150)).toMatchObject({ overrunTokens: 50 });
    expect(ledger.level()).toBe(800);
    ledger.run({ type: "top_up", requestId: "a", fence: 1, tokens: 80 });
    expect(capture("3", 190)).toMatchObject({ overrunTokens: 10 });
    expect(ledger.settle("a", 100, 190)).toMatchObject({ overrunTokens: 10 });
    expect(ledger.level()).toBe(710);
  });

  it("a provider's id is kept once, and from then on the call runs", () => {
    const ledger = fresh();
    ledger.reserve("a", 100, 100);
    const ran = (providerRequestId: string | null) =>
      ledger.run({ type: "running", requestId: "a", fence: 1, providerRequestId }).type;
    expect([ran(null), ran(null), ran("p1"), ran("p2")]).toEqual(["ran", "unchanged", "ran", "unchanged"]);
    expect(ledger.state.leases.get("a")).toMatchObject({ state: "RUNNING", providerRequestId: "p1" });
    ledger.settle("a", 1, 1);
    expect(ledger.run({ type: "running", requestId: "a", fence: 1, providerRequestId: "p3" })).toMatchObject({
      code: "invalid_state",
    });
  });
});
