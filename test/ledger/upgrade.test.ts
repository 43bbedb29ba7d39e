import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { evolve } from "../../src/ledger/evolve.ts";
import { restore } from "../../src/ledger/snapshot.ts";
import { emptyState, type LedgerState } from "../../src/ledger/state.ts";
import { sweep, turn } from "../../src/ledger/turn.ts";
import { eventFromV1, snapshotFromV1 } from "../../src/ledger/upgrade.ts";
import { type Balance, balanceOf, type Reservation, reservationOf } from "../../src/ledger/view.ts";
import { reserveOf, usage } from "../support/ledger.ts";

/** A record as the first version left it, and what it showed then. */
const path = join(import.meta.dirname, "../durable-objects/fixtures/record-v1.json");
const old = JSON.parse(readFileSync(path, "utf8")) as {
  readonly atMs: number;
  readonly checkpoint: { readonly seq: number; readonly data: string };
  readonly batches: readonly { readonly seq: number; readonly events: string }[];
  readonly balance: Balance;
  readonly reservations: readonly (readonly [string, Reservation | null])[];
};

type OldEvent = Parameters<typeof eventFromV1>[0];

function upgraded(): LedgerState {
  const state = restore(
    snapshotFromV1(JSON.parse(old.checkpoint.data) as Parameters<typeof snapshotFromV1>[0]),
  );
  for (const { events } of old.batches)
    for (const event of JSON.parse(events) as OldEvent[]) evolve(state, eventFromV1(event));
  return state;
}

describe("a record of the first version", () => {
  it("shows the balance that it showed then", () => {
    const balance = balanceOf(upgraded(), "old");
    expect(balance.atMs).toBe(old.atMs);
    expect(balance).toMatchObject(old.balance);
    expect(balance.limits).toHaveLength(old.balance.limits.length);
  });

  it.each(old.reservations)("knows the reservation %s as it was", (id, reservation) => {
    expect(reservationOf(upgraded(), id)).toEqual(reservation);
  });

  it("goes on: what was open is settled, a closed id stays closed, a guess is corrected once", () => {
    const state = upgraded();
    const settle = (requestId: string, outputTokens: number) =>
      turn(
        state,
        { type: "settle", requestId, fence: 1, usage: usage(100, outputTokens), basis: "exact" },
        old.atMs,
      ).reply;
    expect(settle("settled", 37)).toMatchObject({ type: "unchanged" });
    expect(settle("settled", 38)).toMatchObject({ code: "already_settled" });
    expect(settle("under", 60)).toMatchObject({ type: "corrected", deltaTokens: 50 });
    expect(settle("running", 300)).toMatchObject({ type: "settled", refundedTokens: 100 });
    expect(settle("partial", 500)).toMatchObject({ type: "settled", overrunTokens: 100 });
    expect(settle("frozen", 0)).toMatchObject({ type: "settled", refundedTokens: 400 });
    expect(turn(state, reserveOf("early", 1, 1), old.atMs).reply).toMatchObject({ code: "invalid_state" });
    expect(turn(state, reserveOf("new", 100, 100), old.atMs).reply).toMatchObject({ type: "reserved" });
    const { limits } = balanceOf(state, "old");
    const held = limits.map((limit) => limit.held);
    expect(held).toEqual([400, 3, 3, 400]); // reserved, after and new
    const before = old.balance.limits.map(({ settledTotal }) => settledTotal);
    expect(limits.map(({ settledTotal }, i) => settledTotal - (before[i] ?? 0))).toEqual([
      50 + 400 + 600 + 100,
      3,
      0,
      0,
    ]);
  });

  it("sweeps what it left behind", () => {
    const state = upgraded();
    const swept = sweep(state, old.atMs + 10_000);
    expect(new Set(swept.map((event) => ("requestId" in event ? event.requestId : null)))).toEqual(
      new Set(["after", "partial", "reserved", "running"]),
    );
    expect(balanceOf(state, "old").reconciling.count).toBe(5);
    expect(sweep(state, old.atMs + 70_000)).toHaveLength(5);
    expect(balanceOf(state, "old").limits.every(({ held }) => held === 0)).toBe(true);
  });

  it("may begin with its policy instead of a checkpoint", () => {
    const { policy, nowMs } = JSON.parse(old.checkpoint.data) as {
      policy: Record<string, unknown>;
      nowMs: number;
    };
    const state = emptyState();
    evolve(state, eventFromV1({ type: "policy_set", atMs: nowMs, policy } as unknown as OldEvent));
    expect(state.policy).toMatchObject({
      hash: "p1",
      reconcileCharge: "charge_hold",
      queue: { lengthMax: 256 },
    });
    expect([...state.definitions.keys()]).toEqual([
      "tenant-tokens",
      "tenant-requests",
      "tenant-slots",
      "flight",
    ]);
    expect(turn(state, reserveOf("a", 100, 100), nowMs).reply).toMatchObject({ type: "reserved" });
  });
});
