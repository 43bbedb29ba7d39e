import { describe, expect, it } from "vitest";
import { bucket, gauge, policyOf, requests, slots, TestLedger } from "../support/ledger.ts";

describe("reserve", () => {
  it("holds input plus the declared ceiling, once, in every limit", () => {
    const ledger = new TestLedger(bucket(1_000, 60), requests(10), slots(4));
    expect(ledger.reserve("a", 300, 100)).toMatchObject({
      type: "reserved",
      state: "DISPATCHED",
      fence: 1,
      hold: { inputTokens: 300, outputTokens: 100 },
      charges: [
        { limit: "tenant-tokens", generation: 1, amount: 400 },
        { limit: "tenant-requests", generation: 1, amount: 1 },
        { limit: "tenant-slots", generation: 1, amount: 1 },
      ],
    });
    expect([ledger.level(), ledger.level("tenant-requests"), ledger.level("tenant-slots")]).toEqual([
      600, 9, 3,
    ]);
    expect(ledger.row()).toMatchObject({ held: 400, settledTotal: 0, debt: 0 });
  });

  it("LIM-01 admits one of five 60-token requests against 100 tokens", () => {
    const ledger = new TestLedger(bucket(100, 0));
    const replies = ["a", "b", "c", "d", "e"].map((id) => ledger.reserve(id, 50, 10).type);
    expect(replies).toEqual(["reserved", "refused", "refused", "refused", "refused"]);
  });

  it("LIM-15 counts the hold at admission: long streams cannot all start", () => {
    const ledger = new TestLedger(bucket(1_000, 0));
    const admitted = Array.from({ length: 50 }, (_, i) => ledger.reserve(`s${i}`, 0, 1_000)).filter(
      (e) => e.type === "reserved",
    );
    expect(admitted).toHaveLength(1);
  });

  it("SET-05 I9 a refusal leaves every limit as it was, and is not remembered", () => {
    const ledger = new TestLedger(bucket(1_000, 0), slots(100));
    ledger.reserve("first", 0, 100);
    const before = JSON.stringify([ledger.row(), ledger.row("tenant-slots"), ledger.moves().length]);
    for (let i = 0; i < 50; i += 1) expect(ledger.reserve("big", 500, 450).type).toBe("refused");
    expect(JSON.stringify([ledger.row(), ledger.row("tenant-slots"), ledger.moves().length])).toBe(before);
    expect(ledger.reserve("big", 50, 50).type).toBe("reserved");
  });

  it("LIM-08 refuses at once what can never fit, and names the limit", () => {
    const ledger = new TestLedger(bucket(1_000, 1_000));
    expect(ledger.reserve("a", 1_000, 400)).toMatchObject({
      code: "request_too_large",
      limit: "tenant-tokens",
      requested: 1_400,
      available: 1_000,
      retryAfterMs: null,
    });
  });

  it("judges the route's ceiling before anything is called exhausted", () => {
    const ledger = new TestLedger(bucket(1_000, 0));
    ledger.reserve("a", 500, 500);
    expect(ledger.reserve("b", 150, 60, { perRequestMaxTokens: 200 })).toMatchObject({
      code: "request_too_large",
      limit: "route:default",
      available: 200,
    });
  });

  it("LIM-05 says when this very amount fits, to the millisecond", () => {
    const ledger = new TestLedger(bucket(1_000, 700));
    ledger.reserve("a", 900, 0);
    const refused = ledger.reserve("b", 333, 0);
    expect(refused).toMatchObject({ code: "tokens_exhausted", requested: 333, available: 100 });
    // 233 tokens at 700 a minute: 19,971.4 ms
    expect(refused).toMatchObject({ retryAfterMs: 19_972 });
    ledger.tick(19_971);
    expect(ledger.reserve("b", 333, 0).type).toBe("refused");
    ledger.tick(1);
    expect(ledger.reserve("b", 333, 0).type).toBe("reserved");
  });

  it("names, of several exhausted limits, the one that frees last", () => {
    const ledger = new TestLedger(bucket(100, 100), requests(2));
    ledger.reserve("a", 100, 0);
    ledger.reserve("b", 0, 0);
    expect(ledger.reserve("c", 100, 0)).toMatchObject({ limit: "tenant-tokens", retryAfterMs: 60_000 });
    expect(ledger.reserve("d", 1, 0)).toMatchObject({
      limit: "tenant-requests",
      code: "requests_exhausted",
      retryAfterMs: 30_000,
    });
  });

  it("keeps batch above its floor, and tells it so", () => {
    const ledger = new TestLedger(bucket(1_000, 0, { batchFloor: 0.25 }));
    expect(ledger.reserve("a", 750, 0, { class: "batch" }).type).toBe("reserved");
    expect(ledger.reserve("b", 1, 0, { class: "batch" })).toMatchObject({ code: "below_batch_floor" });
    expect(ledger.reserve("c", 250, 0).type).toBe("reserved");
    expect(ledger.reserve("d", 751, 0, { class: "batch" })).toMatchObject({
      code: "request_too_large",
      available: 750,
    });
  });

  it("TOK-17 clips a ceiling that nobody declared to what the bucket can hold", () => {
    const ledger = new TestLedger(bucket(100, 100));
    expect(ledger.reserve("a", 10, 16_384, { outputDeclared: false })).toMatchObject({
      hold: { inputTokens: 10, outputTokens: 90 },
    });
  });

  it("clips it for batch to what its floor leaves, and to a bucket of output alone", () => {
    const batch = new TestLedger(bucket(1_000, 0, { batchFloor: 0.25 }));
    const undeclared = { outputDeclared: false };
    expect(batch.reserve("a", 10, 16_384, { ...undeclared, class: "batch" })).toMatchObject({
      hold: { outputTokens: 740 },
    });
    const output = new TestLedger(bucket(1_000, 0), bucket(200, 0, { name: "out", unit: "output_tokens" }));
    expect(output.reserve("a", 10, 16_384, undeclared)).toMatchObject({ hold: { outputTokens: 200 } });
    expect(output.reserve("b", 10, 16_384, { ...undeclared, perRequestMaxTokens: 50 })).toMatchObject({
      code: "tokens_exhausted",
      requested: 40,
    });
  });

  it("LIM-18 takes null as unlimited and 0 as deny", () => {
    expect(new TestLedger(bucket(1_000, 0), slots(null)).reserve("a", 1, 1).type).toBe("reserved");
    expect(new TestLedger(bucket(1_000, 0), slots(0)).reserve("a", 1, 1)).toMatchObject({
      code: "concurrency_exhausted",
      retryAfterMs: null,
    });
    expect(new TestLedger(bucket(0, 0)).reserve("a", 1, 1).type).toBe("refused");
  });

  it("seed 002: a call larger than the in-flight gauge goes alone instead of waiting for ever", () => {
    const ledger = new TestLedger(gauge("in_flight_tokens", 3_733, { name: "flight" }));
    expect(ledger.reserve("a", 12_000, 1_024).type).toBe("reserved");
    expect(ledger.reserve("b", 1, 0)).toMatchObject({ code: "in_flight_exhausted" });
    ledger.settle("a", 12_000, 10);
    expect(ledger.reserve("b", 1, 0).type).toBe("reserved");
  });

  it("asks for a policy it does not know, and keeps the newest", () => {
    const ledger = new TestLedger(bucket(1_000, 0));
    expect(ledger.reserve("a", 1, 1, { policyHash: "p2", policyEpoch: 2 })).toMatchObject({
      code: "need_policy",
    });
    ledger.run({ type: "set_policy", policy: policyOf([bucket(500, 0)], { hash: "p2", epoch: 2 }) });
    expect(ledger.reserve("a", 1, 1, { policyHash: "p1", policyEpoch: 1 }).type).toBe("reserved");
    expect(
      ledger.run({ type: "set_policy", policy: policyOf([bucket(9, 0)], { hash: "p1", epoch: 1 }) }).type,
    ).toBe("unchanged");
    expect(ledger.level()).toBe(498);
  });
});
