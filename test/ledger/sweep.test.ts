import { describe, expect, it } from "vitest";
import { FORGET_PER_LEASE, SWEEP_LEASES_MAX } from "../../src/ledger/bounds.ts";
import type { Command } from "../../src/ledger/commands.ts";
import type { Lease } from "../../src/ledger/state.ts";
import { preview } from "../../src/ledger/turn.ts";
import { bucket, policyOf, reserveOf, slots, type TestLedger, usage } from "../support/ledger.ts";
import { ledgerWith } from "./steps.ts";

const MANY = 10_000;

/** Ten thousand leases, of which a share is frozen; all are due, or none. */
function crowded(due: "all due" | "none due", frozen = 0): TestLedger {
  const ledger = ledgerWith({ leaseTtlMs: 10_000 }, bucket(1e8, 0), slots(null));
  for (let i = 0; i < MANY; i += 1) {
    ledger.reserve(`r${i}`, 1, 1);
    if (i < frozen) ledger.run({ type: "expire", requestId: `r${i}`, cause: "session_lost" });
  }
  if (due === "all due") ledger.nowMs += 60_000;
  return ledger;
}

/** Which leases a step looks at: whoever asks one for its state or its deadline has visited it. */
function visits(ledger: TestLedger, step: () => unknown): Set<string> {
  const seen = new Set<string>();
  const watch = (lease: Lease, member: "state" | "expiresAtMs") => {
    let value: unknown = lease[member];
    Object.defineProperty(lease, member, {
      get: () => {
        seen.add(lease.requestId);
        return value;
      },
      set: (next: unknown) => {
        value = next;
      },
    });
  };
  for (const lease of ledger.state.leases.values()) {
    watch(lease, "state");
    watch(lease, "expiresAtMs");
  }
  step();
  return seen;
}

const own = { requestId: "r9999", fence: 1 };
const commands: readonly (readonly [string, Command])[] = [
  ["a reserve", reserveOf("new", 1, 1, { policyHash: "p2", policyEpoch: 2 })],
  ["a capture", { type: "capture", usageEventId: "1", size: usage(1, 1), ...own }],
  ["a settlement", { type: "settle", usage: usage(1, 1), basis: "exact", ...own }],
  ["a release", { type: "release", evidence: "not_sent", ...own }],
  ["a policy", { type: "set_policy", policy: policyOf([], { hash: "p3", epoch: 3 }) }],
];

describe("leases visited by one call", () => {
  it.each(commands)("are at most the sweep's bound and its own, however many are due: %s", (_, command) => {
    const ledger = crowded("all due", MANY / 2);
    const seen = visits(ledger, () => ledger.run(command));
    expect(seen.size).toBeGreaterThanOrEqual(SWEEP_LEASES_MAX);
    expect(seen.size).toBeLessThanOrEqual(SWEEP_LEASES_MAX + 1);
  });

  it.each(commands)("are the heads of the queues and its own when none is due: %s", (_, command) => {
    const ledger = crowded("none due", MANY / 2);
    const seen = visits(ledger, () => ledger.run(command));
    expect(seen.size).toBeLessThanOrEqual(3);
  });

  it("are as many in a look at what would be decided, and in a sweep", () => {
    for (const due of ["all due", "none due"] as const) {
      const ledger = crowded(due);
      const most = due === "all due" ? SWEEP_LEASES_MAX + 1 : 3;
      const look = visits(ledger, () => preview(ledger.state, commands[1]?.[1] as Command, ledger.nowMs));
      expect(look.size).toBeLessThanOrEqual(most);
      const sweep = visits(ledger, () => ledger.sweep());
      expect(sweep.size).toBeLessThanOrEqual(most);
    }
  });

  it("are two more where a new lease makes the ledger forget old ones", () => {
    const ledger = crowded("none due");
    for (let i = 0; i < 5_000; i += 1) ledger.settle(`r${i}`, 1, 1);
    ledger.nowMs += 3_600_000;
    const [, reserve] = commands[0] ?? [];
    const seen = visits(ledger, () => ledger.run(reserve as Command));
    expect(seen.size).toBeLessThanOrEqual(SWEEP_LEASES_MAX + FORGET_PER_LEASE + 1);
    expect(ledger.state.closed.length).toBe(5_000 - FORGET_PER_LEASE);
  });
});

describe("a sweep", () => {
  it("gets through all that is due, a bounded number a call, in the order of their deadlines", () => {
    const ledger = ledgerWith({ leaseTtlMs: 10_000 }, bucket(1e8, 0));
    for (let i = 0; i < 1_000; i += 1) {
      ledger.reserve(`r${i}`, 1, 1);
      ledger.tick(1);
    }
    ledger.nowMs += 10_000;
    const order: string[] = [];
    for (let calls = 0; order.length < 1_000; calls += 1) {
      const events = ledger.sweep();
      expect(events.length).toBe(Math.min(SWEEP_LEASES_MAX, 1_000 - order.length));
      for (const event of events) if (event.type === "expired") order.push(event.requestId);
      expect(calls).toBeLessThan(17);
    }
    expect(order).toEqual(Array.from({ length: 1_000 }, (_, i) => `r${i}`));
    expect(ledger.sweep()).toEqual([]);
  });
});
