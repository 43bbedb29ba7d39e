import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { capacityOf, levelOf, scaleOf } from "../../src/ledger/limits.ts";
import { restore, snapshot } from "../../src/ledger/snapshot.ts";
import { isOpen, tokensOf } from "../../src/ledger/state.ts";
import { bucket, requests, slots, TestLedger, usage } from "../support/ledger.ts";

type Step = { readonly kind: number; readonly who: number; readonly amount: number; readonly waitMs: number };

const step = fc.record({
  kind: fc.integer({ min: 0, max: 9 }),
  who: fc.integer({ min: 0, max: 12 }),
  amount: fc.integer({ min: 0, max: 400 }),
  waitMs: fc.oneof(fc.integer({ min: -50, max: 2_000 }), fc.constantFrom(0, 10_000, 60_000)),
});

function apply(ledger: TestLedger, { kind, who, amount, waitMs }: Step): void {
  ledger.tick(waitMs);
  const requestId = `r${who}`;
  switch (kind) {
    case 0:
    case 1:
    case 2:
      ledger.reserve(requestId, amount, 50, {
        dispatch: kind > 0,
        class: kind === 1 ? "batch" : "interactive",
      });
      return;
    case 3:
      ledger.run({ type: "dispatch", requestId, fence: 1 });
      return;
    case 4:
      ledger.run({ type: "running", requestId, fence: 1, providerRequestId: "p" });
      return;
    case 5:
      ledger.run({
        type: "capture",
        requestId,
        fence: 1,
        usageEventId: String(amount),
        size: usage(amount, amount >> 2),
      });
      return;
    case 6:
      ledger.settle(requestId, amount, amount >> 1, amount % 2 === 0 ? "exact" : "under_estimate");
      return;
    case 7:
      ledger.run({
        type: "release",
        requestId,
        fence: amount % 3 === 0 ? null : 1,
        evidence: amount % 2 === 0 ? "not_sent" : "provider_refused",
      });
      return;
    case 8:
      ledger.run({ type: "expire", requestId, cause: "session_lost" });
      return;
    default:
      ledger.sweep();
  }
}

/** Recomputed from the leases and the record, not from the ledger's own sums. */
function check(ledger: TestLedger): void {
  for (const limit of ledger.state.limits.values()) {
    let held = 0;
    for (const lease of ledger.state.leases.values())
      held += lease.charges.find((charge) => charge.limit === limit.key)?.amount ?? 0;
    expect(limit.held).toBe(held);
    const level = levelOf(limit, ledger.state.nowMs);
    const full = (capacityOf(limit) ?? 0) * scaleOf(limit);
    expect(level).toBeLessThanOrEqual(full);
    expect(Number.isSafeInteger(level)).toBe(true);
    if (limit.definition.spec.kind === "gauge") expect(level).toBe(full - held);
  }
  let settled = 0;
  for (const { settlement } of ledger.state.leases.values())
    if (settlement !== null) settled += tokensOf(settlement.usage);
  expect(ledger.row().settledTotal - ledger.row().creditedTotal).toBe(settled);
  for (const lease of ledger.state.leases.values()) {
    if (!isOpen(lease.state) && lease.state !== "RECONCILING")
      expect(lease.charges.every((charge) => charge.amount === 0)).toBe(true);
  }
}

describe("the record", () => {
  it("I8 memory equals the fold of the record after any commands, and the sums are those of the leases", () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 120 }), (steps) => {
        const ledger = new TestLedger(bucket(1_000, 700, { batchFloor: 0.2 }), requests(40), slots(6));
        for (const each of steps) {
          apply(ledger, each);
          check(ledger);
        }
        expect(ledger.sameAsFold()).toBe(true);
        expect(JSON.stringify(snapshot(restore(snapshot(ledger.state))))).toBe(
          JSON.stringify(snapshot(ledger.state)),
        );
      }),
      { numRuns: 300, seed: 20261130 },
    );
  });

  it("I4 net charge over any interval is at most the level at its start, plus refill, plus declared overruns", () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 120 }), (steps) => {
        const ledger = new TestLedger(bucket(1_000, 700));
        const startMs = ledger.state.nowMs;
        for (const each of steps) apply(ledger, each);
        let overrun = 0;
        for (const event of ledger.record) if (event.type === "settled") overrun += event.overrunTokens;
        for (const event of ledger.record)
          if (event.type === "corrected") overrun += Math.max(0, event.deltaTokens);
        const refilled = (700 * (ledger.state.nowMs - startMs)) / 60_000;
        const { held, settledTotal } = ledger.row();
        expect(held + settledTotal).toBeLessThanOrEqual(1_000 + refilled + overrun + 1e-6);
      }),
      { numRuns: 200, seed: 7 },
    );
  });
});
