import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { REFUSALS_PER_BATCH_MAX } from "../../src/ledger/bounds.ts";
import { GroupCommit } from "../../src/ledger/group-commit.ts";
import { refusal, unchanged } from "../../src/ledger/refuse.ts";
import { emptyState } from "../../src/ledger/state.ts";
import type { LedgerEvent } from "../../src/ledger/types.ts";

/** Must be written before it is told. */
const firm = (requestId: string): LedgerEvent => ({ type: "forestalled", atMs: 0, requestId });
/** May ride with another's write. */
const captured = (requestId: string): LedgerEvent => ({
  type: "captured",
  atMs: 0,
  requestId,
  fence: 1,
  usageEventId: "1",
  captured: { inputTokens: 1, outputTokens: 1 },
  overrunTokens: 0,
  moves: [],
  expiresAtMs: 0,
});
const ran = (requestId: string): LedgerEvent => ({
  type: "ran",
  atMs: 0,
  requestId,
  fence: 1,
  providerRequestId: null,
  dispatches: false,
  expiresAtMs: 0,
});
const no = (requestId: string): LedgerEvent => refusal("tokens_exhausted", requestId, 0);
const ids = (events: readonly LedgerEvent[] | null) =>
  events?.map((event) => ("requestId" in event ? event.requestId : event.type)) ?? null;

describe("group commit", () => {
  it("writes at once when nothing is under way", () => {
    const commit = new GroupCommit();
    const { write, ticket } = commit.add([firm("a")]);
    expect([ids(write), ticket, commit.writes]).toEqual([["a"], 1, 1]);
    expect(commit.arrived()).toBeNull();
    expect(ids(commit.add([firm("b")]).write)).toEqual(["b"]);
  });

  it("gathers what happens while a write is under way, and writes it as one when that has arrived", () => {
    const commit = new GroupCommit();
    commit.add([firm("a")]);
    for (const id of ["b", "c", "d"]) expect(commit.add([firm(id)])).toEqual({ write: null, ticket: 2 });
    expect(commit.writes).toBe(1);
    expect(ids(commit.arrived())).toEqual(["b", "c", "d"]);
    expect(commit.writes).toBe(2);
    expect(commit.arrived()).toBeNull();
  });

  it("I8 whoever only looks waits for what it has seen: the ticket is that of the write to come", () => {
    const commit = new GroupCommit();
    expect(commit.add([])).toEqual({ write: null, ticket: 0 });
    commit.add([firm("a")]);
    expect(commit.add([])).toEqual({ write: null, ticket: 1 });
    commit.add([firm("b")]);
    expect(commit.add([])).toEqual({ write: null, ticket: 2 });
    expect(commit.add([no("c")])).toEqual({ write: null, ticket: 2 });
    commit.arrived();
    expect(commit.add([])).toEqual({ write: null, ticket: 2 });
  });

  it("does not write for captures and refusals, nor make them wait", () => {
    const commit = new GroupCommit();
    for (const event of [captured("a"), no("b"), ran("c")])
      expect(commit.add([event])).toEqual({ write: null, ticket: 0 });
    expect(ids(commit.add([firm("d")]).write)).toEqual(["a", "b", "c", "d"]);
  });

  it("keeps riders that come during a write for the next, which waits for company", () => {
    const commit = new GroupCommit();
    commit.add([firm("a")]);
    expect(commit.add([captured("b")])).toEqual({ write: null, ticket: 1 });
    expect(commit.arrived()).toBeNull();
    expect(commit.hasImpatientRiders).toBe(true);
    expect(ids(commit.flush())).toEqual(["b"]);
    expect(commit.hasImpatientRiders).toBe(false);
    expect(commit.flush()).toBeNull();
  });

  it("sends riders whose time is up with the write under way's successor", () => {
    const commit = new GroupCommit();
    commit.add([firm("a")]);
    commit.add([captured("b")]);
    expect(commit.flush()).toBeNull();
    expect(commit.hasImpatientRiders).toBe(false);
    expect(ids(commit.arrived())).toEqual(["b"]);
  });

  it("has no rider that must not wait in a provider's id alone, nor in nothing", () => {
    const commit = new GroupCommit();
    expect(commit.hasImpatientRiders).toBe(false);
    commit.add([ran("a")]);
    expect(commit.hasImpatientRiders).toBe(false);
    commit.add([no("b")]);
    expect(commit.hasImpatientRiders).toBe(true);
  });

  it("records nothing of the queue and of repeats", () => {
    const commit = new GroupCommit();
    const events: LedgerEvent[] = [
      unchanged(emptyState(), "a", 0),
      { type: "left", atMs: 0, requestId: "b" },
    ];
    expect(commit.add(events)).toEqual({ write: null, ticket: 0 });
    expect(commit.flush()).toBeNull();
  });

  it("keeps so many refusals of a flood, and all that is not one", () => {
    const commit = new GroupCommit();
    for (let i = 0; i < 2 * REFUSALS_PER_BATCH_MAX; i += 1) commit.add([no(`n${i}`)]);
    const written = ids(commit.add([firm("a")]).write);
    expect(written).toHaveLength(REFUSALS_PER_BATCH_MAX + 1);
    expect(written?.at(-1)).toBe("a");
    commit.arrived();
    commit.add([no("again")]);
    expect(ids(commit.flush())).toEqual(["again"]);
  });

  it("I8 writes every event once and in order, and tickets only what is written, whatever the timing", () => {
    const step = fc.oneof(
      fc.record({ do: fc.constant("add" as const), firm: fc.array(fc.boolean(), { maxLength: 4 }) }),
      fc.record({ do: fc.constantFrom("arrived" as const, "flush" as const) }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const commit = new GroupCommit();
        const written: (string | null)[][] = [[]];
        const told: { id: string; ticket: number }[] = [];
        let made = 0;
        let underWay = false;
        const take = (events: readonly LedgerEvent[] | null) => {
          if (events === null) return;
          expect(underWay).toBe(false);
          underWay = true;
          written.push(ids(events) ?? []);
        };
        for (const each of steps) {
          if (each.do === "add") {
            const events = each.firm.map((isFirm) => (isFirm ? firm : captured)(`e${made++}`));
            const { write, ticket } = commit.add(events);
            take(write);
            for (const [i, event] of events.entries())
              if (each.firm[i] && event.type === "forestalled") told.push({ id: event.requestId, ticket });
          } else if (each.do === "flush") take(commit.flush());
          else if (underWay) {
            underWay = false;
            take(commit.arrived());
          }
          expect(commit.writes).toBe(written.length - 1);
        }
        for (let rest = 0; rest < 2; rest += 1) {
          underWay = false;
          take(commit.arrived());
          take(underWay ? null : commit.flush());
        }
        expect(written.flat()).toEqual(Array.from({ length: made }, (_, i) => `e${i}`));
        // An answer may go once its ticket's write has begun: what it tells must be in that one or an earlier one.
        for (const { id, ticket } of told) expect(written.slice(0, ticket + 1).flat()).toContain(id);
      }),
      { numRuns: 300, seed: 3 },
    );
  });
});
