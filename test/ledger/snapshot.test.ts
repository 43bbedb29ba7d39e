import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Command, Reserve } from "../../src/ledger/commands.ts";
import { restore, type Snapshot, snapshot } from "../../src/ledger/snapshot.ts";
import type { LedgerState } from "../../src/ledger/state.ts";
import { turn } from "../../src/ledger/turn.ts";
import { balanceOf } from "../../src/ledger/view.ts";
import {
  bucket,
  calendar,
  gauge,
  requests,
  rolling,
  scope,
  slots,
  TestLedger,
  usage,
} from "../support/ledger.ts";
import { change, ledgerWith } from "./steps.ts";

const limits = [
  bucket(3_000, 7_001, { batchFloor: 0.2, cachedInputWeight: 0.3 }),
  requests(500),
  slots(12),
  gauge("in_flight_tokens", 2_000, { name: "flight" }),
  gauge("concurrency", "auto", { name: "auto", per: ["model"], allowancePerMinute: 600 }),
  bucket(900, 6_000, { name: "user", per: ["user"] }),
  calendar(2_000_000, { name: "hourly", every: "hour", alerts: [0.5, 1] }),
  calendar(90_000, {
    name: "weekly",
    unit: "tokens",
    every: "week",
    timeZone: "Europe/Berlin",
    stop: "spent",
  }),
  rolling(4_000, { name: "rolling" }),
];
const price = { inputPicoUsd: 150_001, cachedInputPicoUsd: 75_000, outputPicoUsd: 600_000 };

const step = fc.record({
  kind: fc.integer({ min: 0, max: 13 }),
  who: fc.integer({ min: 0, max: 5 }),
  amount: fc.integer({ min: 0, max: 700 }),
  waitMs: fc.oneof(
    { weight: 8, arbitrary: fc.integer({ min: -50, max: 300 }) },
    { weight: 4, arbitrary: fc.constant(0) },
    { weight: 1, arbitrary: fc.constantFrom(5_000, 10_000, 61_000, 900_000) },
  ),
});
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

function reserve({ who, amount, kind }: Step): Partial<Reserve> {
  return {
    dispatch: kind % 2 === 0,
    class: amount % 5 === 0 ? "batch" : "interactive",
    price: who % 3 === 0 ? null : price,
    queueMs: amount % 3 === 0 ? 8_000 : null,
    scope: { ...scope, model: `m${who % 2}`, user: `u${amount % 7}` },
    idempotency:
      who % 2 === 0
        ? null
        : {
            key: `k${who % 4}`,
            digest: `d${amount % 2}`,
            repeat: amount % 4 < 2 ? "same_lease" : "new_attempt",
          },
  };
}

function commandOf({ kind, who, amount }: Step, made: number): Command {
  const requestId = `r${Math.max(0, made - who)}`;
  const on = { requestId, fence: kind === 13 ? 2 : 1 };
  const seen = usage(amount >> 1, amount >> 2);
  switch (kind) {
    case 4:
      return { type: "dispatch", ...on };
    case 5:
      return { type: "running", providerRequestId: `p${who}`, ...on };
    case 6:
      return { type: "capture", usageEventId: String(amount), size: seen, ...on };
    case 7:
      return { type: "top_up", tokens: amount, ...on };
    case 8:
      return { type: "release", requestId, fence: null, evidence: amount % 2 === 0 ? "not_sent" : null };
    case 9:
      return { type: "expire", requestId, cause: "session_lost" };
    case 10:
      return { type: "take_over", requestId };
    case 11:
      return { type: "resolve", requestId, usage: amount % 2 === 0 ? seen : null };
    case 12:
      return { type: "leave", requestId, cause: "caller_left" };
    default:
      return {
        type: "settle",
        usage: { ...seen, cachedInputTokens: amount >> 3 },
        basis: amount % 2 === 0 ? "exact" : "under_estimate",
        ...on,
      };
  }
}

/** Runs the steps and tells what was left of them. */
function after(steps: readonly Step[], each?: (ledger: TestLedger) => void): TestLedger {
  const ledger = new TestLedger(...limits);
  let made = 0;
  for (const one of steps) {
    ledger.tick(one.waitMs);
    if (one.kind < 4) {
      made += 1;
      ledger.reserve(`r${made}`, one.amount, one.amount >> 1, reserve(one));
    } else ledger.run(commandOf(one, made));
    if (one.kind === 3 && one.amount > 650) change(ledger, limits.slice(one.who % 3));
    each?.(ledger);
  }
  return ledger;
}

/** What a snapshot has no word for, and a restart must find all the same. */
const linesOf = (lines: LedgerState["open"]) =>
  Object.fromEntries(
    [...lines]
      .filter(([, line]) => line.length > 0)
      .map(([ms, line]) => [ms, [...line].map(({ requestId }) => requestId)]),
  );

const beside = (state: LedgerState) => ({
  keys: Object.fromEntries(state.byIdempotencyKey),
  open: linesOf(state.open),
  reconciling: linesOf(state.reconciling),
  closed: [...state.closed].map(({ requestId }) => requestId),
  shared: [...state.limits.values()].every(
    (limit) => limit.definition === state.definitions.get(limit.definition.spec.name),
  ),
});

const throughJson = (state: LedgerState): LedgerState =>
  restore(JSON.parse(JSON.stringify(snapshot(state))) as Snapshot);

const nobodyWaits = (ledger: TestLedger): void => {
  for (const requestId of ledger.state.queue.byId.keys())
    ledger.run({ type: "leave", requestId, cause: "caller_left" });
};

describe("a snapshot", () => {
  it("I8 brings back the whole state but the queue, after any commands", () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
        const ledger = after(steps);
        nobodyWaits(ledger);
        const restored = throughJson(ledger.state);
        expect(snapshot(restored)).toEqual(snapshot(ledger.state));
        expect(beside(restored)).toEqual(beside(ledger.state));
      }),
      { numRuns: 250, seed: 11 },
    );
  });

  it("I8 what was restored goes on as what was not", () => {
    fc.assert(
      fc.property(
        fc.array(step, { maxLength: 60 }),
        fc.array(step, { minLength: 1, maxLength: 40 }),
        (before, then) => {
          const ledger = after(before);
          nobodyWaits(ledger);
          const restored = throughJson(ledger.state);
          let made = 1_000;
          for (const one of then) {
            ledger.tick(one.waitMs);
            made += 1;
            const { hash: policyHash = "", epoch: policyEpoch = 0 } = ledger.state.policy ?? {};
            const command: Command =
              one.kind < 4
                ? {
                    type: "reserve",
                    requestId: `r${made}`,
                    policyHash,
                    policyEpoch,
                    inputTokens: one.amount,
                    counted: null,
                    maxOutputTokens: one.amount >> 1,
                    outputDeclared: true,
                    perRequestMaxTokens: null,
                    scope,
                    class: "interactive",
                    price: null,
                    dispatch: true,
                    queueMs: null,
                    idempotency: null,
                    ...reserve(one),
                  }
                : commandOf(one, one.who % 2 === 0 ? made : before.length);
            const reply = ledger.run(command);
            expect(turn(restored, command, ledger.nowMs).reply).toEqual(reply);
          }
          expect(balanceOf(restored, "t")).toEqual(balanceOf(ledger.state, "t"));
        },
      ),
      { numRuns: 150, seed: 12 },
    );
  });

  it("I8 memory equals the fold of the record, with every kind of limit, a queue and changes of policy", () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
        const ledger = after(steps);
        expect(ledger.sameAsFold()).toBe(true);
        nobodyWaits(ledger);
        expect(beside(ledger.folded())).toEqual(beside(ledger.state));
      }),
      { numRuns: 250, seed: 13 },
    );
  });

  it("reaches every state and most refusals with those commands", () => {
    const seen = new Set<string>();
    for (const steps of fc.sample(fc.array(step, { minLength: 60, maxLength: 80 }), {
      numRuns: 60,
      seed: 14,
    })) {
      const ledger = after(steps, ({ state }) => {
        if (state.queue.byId.size > 0) seen.add("PROPOSED");
        for (const lease of state.leases.values()) seen.add(lease.state);
      });
      for (const event of ledger.record) seen.add(event.type === "refused" ? event.code : event.type);
    }
    for (const word of [
      "PROPOSED",
      "RESERVED",
      "DISPATCHED",
      "RUNNING",
      "PARTIALLY_SETTLED",
      "RECONCILING",
      "SETTLED",
      "RELEASED",
    ])
      expect(seen).toContain(word);
    for (const word of [
      "topped_up",
      "corrected",
      "taken_over",
      "window_turned",
      "forestalled",
      "deadline_exceeded",
      "idempotency_conflict",
      "request_in_progress",
      "stale_fence",
      "already_settled",
    ])
      expect(seen).toContain(word);
  });

  it("forgets the queue: who waits in it was promised nothing", () => {
    const ledger = ledgerWith({}, slots(1));
    ledger.reserve("inside", 1, 0);
    ledger.reserve("w", 1, 0, { queueMs: 5_000 });
    const restored = throughJson(ledger.state);
    expect(restored.queue.byId.size).toBe(0);
    expect(ledger.state.queue.byId.size).toBe(1);
  });

  it("shares nothing with the state it was taken from", () => {
    const ledger = new TestLedger(...limits);
    ledger.reserve("a", 100, 100);
    const taken = snapshot(ledger.state);
    const before = JSON.stringify(taken);
    ledger.tick(1_234);
    ledger.settle("a", 10, 10);
    ledger.reserve("b", 100, 100);
    ledger.tick(3_600_000);
    ledger.sweep();
    expect(JSON.stringify(taken)).toBe(before);
  });
});
