/** What is billed for an input teaches what to hold for the next. */
import { describe, expect, it } from "vitest";
import { DRIFT_MAX, DRIFT_SAMPLES_MIN, driftOf, learnDrift } from "../../src/estimator/drift.ts";
import type { Counted } from "../../src/ledger/commands.ts";
import { restore, type Snapshot, snapshot } from "../../src/ledger/snapshot.ts";
import { turn } from "../../src/ledger/turn.ts";
import { eventFromV2, snapshotFromV2 } from "../../src/ledger/upgrade.ts";
import { balanceOf } from "../../src/ledger/view.ts";
import { bucket, reserveOf, TestLedger } from "../support/ledger.ts";

const counted = (more: Partial<Counted> = {}): Counted => ({
  basis: "counted",
  vocabulary: "o200k_base@1",
  components: { messages: 100 },
  presumedDrift: 1.25,
  ...more,
});

const ledger = () => new TestLedger(bucket(100_000_000, 0));

/** Prompts of a hundred counted tokens, each billed at `billed`. */
function bill(tested: TestLedger, billed: number, times: number, how = counted(), name = "b"): void {
  for (let i = 0; i < times; i++) {
    tested.reserve(`${name}${i}`, 100, 10, { counted: how });
    tested.settle(`${name}${i}`, billed, 10);
  }
}

const inputHeld = (tested: TestLedger, id: string, how: Counted | null) => {
  const reply = tested.reserve(id, 100, 10, { counted: how });
  return reply.type === "reserved" ? reply.hold.inputTokens : null;
};

describe("drift", () => {
  it("TOK-08 holds by what was presumed, and from the thirtieth bill on by what was billed", () => {
    const tested = ledger();
    expect(inputHeld(tested, "first", counted())).toBe(125);
    bill(tested, 180, DRIFT_SAMPLES_MIN - 1);
    expect(inputHeld(tested, "before", counted())).toBe(125);
    bill(tested, 180, 1, counted(), "last");
    expect(inputHeld(tested, "after", counted())).toBe(180);
    expect(balanceOf(tested.state, "t").drift).toEqual([
      { model: "m", ratio: expect.closeTo(1.8, 9) as number, samples: DRIFT_SAMPLES_MIN },
    ]);
  });

  it("is in the event, with what was counted, so that the record tells how the hold was made", () => {
    const reply = ledger().reserve("r", 100, 10, { counted: counted() });
    expect(reply).toMatchObject({
      hold: { inputTokens: 125, outputTokens: 10 },
      counted: { ...counted(), inputTokens: 100, drift: 1.25 },
    });
  });

  it("leaves a caller's own word and the biller's own count as they are", () => {
    const tested = ledger();
    bill(tested, 180, 2 * DRIFT_SAMPLES_MIN);
    expect(inputHeld(tested, "own", null)).toBe(100);
    expect(inputHeld(tested, "asked", counted({ basis: "asked" }))).toBe(100);
    // What is only bounded or assumed is multiplied as well: it would be a smaller guess otherwise.
    expect(inputHeld(tested, "bounded", counted({ basis: "bounded" }))).toBe(180);
    // Nobody knows what the biller would have said: the most that a count was ever off by.
    expect(inputHeld(tested, "vain", counted({ basis: "unanswered" }))).toBe(100 * DRIFT_MAX);
  });

  it.each(["bounded", "estimated", "asked", "unanswered"] as const)(
    "learns nothing from an input that was %s",
    (basis) => {
      const tested = ledger();
      bill(tested, 180, 2 * DRIFT_SAMPLES_MIN, counted({ basis }));
      expect(tested.state.drifts.size).toBe(0);
    },
  );

  it("learns nothing from a guess, from an empty bill, or from another model", () => {
    const tested = ledger();
    tested.reserve("guess", 100, 10, { counted: counted() });
    tested.settle("guess", 180, 10, "under_estimate");
    bill(tested, 0, 3, counted(), "free");
    expect(tested.state.drifts.size).toBe(0);
    bill(tested, 180, 2 * DRIFT_SAMPLES_MIN);
    const scope = { ...reserveOf("x", 1, 1).scope, model: "another" };
    expect(tested.reserve("other", 100, 10, { counted: counted(), scope })).toMatchObject({
      hold: { inputTokens: 125 },
    });
  });

  it("is judged by the limits as it will be billed", () => {
    const tested = new TestLedger(bucket(120, 0));
    expect(tested.reserve("r", 100, 10, { counted: counted() })).toMatchObject({
      code: "request_too_large",
      requested: 135,
    });
  });

  it("survives a restart, and records of the second version are brought forward without it", () => {
    const tested = ledger();
    bill(tested, 180, DRIFT_SAMPLES_MIN);
    tested.reserve("open", 100, 10, { counted: counted() });
    const stored = JSON.parse(JSON.stringify(snapshot(tested.state))) as Snapshot;
    const restored = restore(stored);
    expect(restored.drifts).toEqual(tested.state.drifts);
    expect(restored.leases.get("open")?.countedTokens).toBe(100);
    const { drifts: _, ...rest } = stored;
    const second = { ...rest, leases: stored.leases.map((lease) => lease.slice(0, 22)) };
    const brought = restore(snapshotFromV2(second as unknown as Snapshot));
    expect(brought.drifts.size).toBe(0);
    expect(brought.leases.get("open")).toMatchObject({ countedTokens: null, hold: { inputTokens: 180 } });
    const reply = turn(brought, reserveOf("new", 10, 10), tested.nowMs).reply;
    if (reply.type !== "reserved") throw new Error(reply.type);
    const { counted: __, ...old } = reply;
    expect(eventFromV2(old as typeof reply)).toEqual({ ...reply, counted: null });
  });
});

describe("the ratio", () => {
  it("stays within its bounds, follows a change, and is not led by one long prompt", () => {
    const after = (bills: readonly (readonly [number, number])[]) =>
      bills.reduce((known, [of, billed]) => learnDrift(known, of, billed), learnDrift(undefined, 100, 100));
    const many = (of: number, billed: number) => Array.from({ length: 400 }, () => [of, billed] as const);
    expect(driftOf(after(many(100, 900)), 1)).toBe(DRIFT_MAX);
    expect(driftOf(after(many(100, 1)), 1)).toBe(0.5);
    expect(driftOf(after([...many(100, 200), ...many(100, 110)]), 1)).toBeCloseTo(1.1, 2);
    expect(driftOf(after([...many(8_000, 8_000), [1_000_000, 2_000_000]]), 1)).toBeLessThan(1.02);
  });
});
