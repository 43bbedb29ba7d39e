import { describe, expect, it } from "vitest";
import { GroupCommit } from "../../../src/ledger/group-commit.ts";
import type { LedgerState } from "../../../src/ledger/state.ts";
import { turn } from "../../../src/ledger/turn.ts";
import type { LedgerEvent } from "../../../src/ledger/types.ts";
import { MUST_BE_SEEN, type Seen } from "./coverage.ts";
import { CORE, type Core } from "./object.ts";
import { shrunk } from "./shrink.ts";
import { run } from "./world.ts";

/** A core that does one thing wrong after each turn. */
const wrong = (spoil: (state: LedgerState, reply: LedgerEvent) => void): Core => ({
  ...CORE,
  turn: (state, command, nowMs) => {
    const done = turn(state, command, nowMs);
    spoil(state, done.reply);
    return done;
  },
});

/** Lets an answer go before the write that carries it. */
class Hasty extends GroupCommit {
  override add(events: readonly LedgerEvent[]) {
    const { write, ticket } = super.add(events);
    return { write, ticket: write === null ? Math.max(0, ticket - 1) : ticket };
  }
}

const leaseOf = (state: LedgerState, event: LedgerEvent) =>
  "requestId" in event && event.requestId !== null ? state.leases.get(event.requestId) : undefined;

const WRONG: readonly (readonly [string, Core])[] = [
  [
    "debt is forgiven",
    wrong((state) => {
      for (const limit of state.limits.values()) limit.level = Math.max(0, limit.level);
    }),
  ],
  [
    "a hold is not let go",
    wrong((state, reply) => {
      if (reply.type === "released") for (const limit of state.limits.values()) limit.held += 1;
    }),
  ],
  [
    "a take-over keeps the fence",
    wrong((state, reply) => {
      const lease = leaseOf(state, reply);
      if (reply.type === "taken_over" && lease !== undefined) lease.fence -= 1;
    }),
  ],
  [
    "a refusal leaves a trace",
    wrong((state, reply) => {
      if (reply.type === "refused") for (const limit of state.limits.values()) limit.held += 1;
    }),
  ],
  ["an answer leaves before its record", { ...CORE, commit: () => new Hasty() }],
];

const firstFailure = (core: Core) => {
  for (let seed = 0; seed < 40; seed += 1) {
    const failure = run({ seed, steps: 2_000, core });
    if (failure !== null) return { seed, failure };
  }
  return null;
};

describe("the world", () => {
  it("I1 to I9 hold, and the model predicts every event, whatever clients, network, disks and clocks do", () => {
    const seen: Seen = {};
    for (let seed = 0; seed < 60; seed += 1) expect(run({ seed, steps: 3_000, seen })).toBeNull();
    // One thing that is rare enough to want the whole of `npm run sim`.
    const rare = ["auto gauge", "event taken_over", "alert"];
    expect(MUST_BE_SEEN.filter((what) => seen[what] === undefined && !rare.includes(what))).toEqual([]);
  }, 60_000);

  it("is the same for the same seed", () => {
    const once: Seen = {};
    const again: Seen = {};
    run({ seed: 5, steps: 1_000, seen: once });
    run({ seed: 5, steps: 1_000, seen: again });
    expect(again).toEqual(once);
  });

  it.each(WRONG)("notices when %s", (_what, core) => {
    expect(firstFailure(core)).not.toBeNull();
  });

  it("tells a failure in few steps", () => {
    const found = firstFailure(WRONG[3]?.[1] ?? CORE);
    expect(found).not.toBeNull();
    if (found !== null)
      expect(shrunk(found.seed, found.failure, WRONG[3]?.[1]).history.length).toBeLessThan(12);
  });
});
