import { describe, expect, it } from "vitest";
import { LedgerStore, RING_SLOTS } from "../../durable-objects/ledger-store.ts";
import type { Command } from "../../src/ledger/commands.ts";
import { snapshot } from "../../src/ledger/snapshot.ts";
import { emptyState, type LedgerState } from "../../src/ledger/state.ts";
import { turn } from "../../src/ledger/turn.ts";
import { isRecorded, type RecordedEvent } from "../../src/ledger/types.ts";
import { bucket, gauge, policyOf, reserveOf, slots, usage } from "../support/ledger.ts";
import { billOf, inside, newName, recorded, settle, stubOf } from "./ledgers.ts";

const LEASES = 10_000;
const RECOVERY_MS_MAX = 100;

/** A ledger whose shell is the test: events are kept until they are written. */
class Written {
  readonly store: LedgerStore;
  readonly state: LedgerState = emptyState();
  #events: RecordedEvent[] = [];
  #nowMs = 1_000_000;

  constructor(sql: SqlStorage) {
    this.store = new LedgerStore(sql);
    this.store.load();
    this.run({
      type: "set_policy",
      policy: policyOf([bucket(1_000_000_000, 0), slots(100_000), gauge("in_flight_tokens", 1_000_000_000)]),
    });
    this.write();
  }

  run(command: Command): void {
    this.#nowMs += 1;
    const { events } = turn(this.state, command, this.#nowMs);
    this.#events.push(...events.filter(isRecorded));
  }

  reserve(id: string): void {
    this.run(reserveOf(id, 100, 50));
  }

  settled(id: string): void {
    this.reserve(id);
    this.run(settle(id, 10));
  }

  tick(ms: number): void {
    this.#nowMs += ms;
  }

  write(): void {
    const events = this.#events;
    this.#events = [];
    this.store.write(events, this.state);
  }
}

const NEWEST = "seq = (SELECT max(seq) FROM checkpoint)";

const count = (sql: SqlStorage, query: string): number => Number(sql.exec(query).one()["n"]);
const checkpointSeq = (sql: SqlStorage) => count(sql, "SELECT coalesce(max(seq), 0) AS n FROM checkpoint");
const newestSeq = (sql: SqlStorage) => count(sql, "SELECT max(seq) AS n FROM batch");
const tailLength = (sql: SqlStorage) =>
  count(
    sql,
    "SELECT coalesce(sum(length(events)), 0) AS n FROM batch WHERE seq > (SELECT coalesce(max(seq), 0) FROM checkpoint)",
  );

const checkpointLengthOf = (sql: SqlStorage) =>
  count(sql, `SELECT sum(length(data)) AS n FROM checkpoint WHERE ${NEWEST}`);

/** A store of its own, in an object that does nothing else. */
const onFreshStore = <T>(test: (sql: SqlStorage) => T): Promise<T> => inside(stubOf(newName()), test);

describe("a checkpoint", () => {
  it("comes twice a round of the ring, so that no row is overwritten that it does not cover", () =>
    onFreshStore((sql) => {
      const ledger = new Written(sql);
      ledger.reserve("open");
      ledger.write();
      for (let seq = newestSeq(sql); seq < RING_SLOTS / 2 - 1; seq += 1) {
        ledger.run({
          type: "capture",
          requestId: "open",
          fence: 1,
          usageEventId: `${seq}`,
          size: usage(seq % 90, 0),
        });
        ledger.write();
      }
      expect([newestSeq(sql), checkpointSeq(sql)]).toEqual([RING_SLOTS / 2 - 1, 0]);
      ledger.settled("one more");
      ledger.write();
      expect(checkpointSeq(sql)).toBe(RING_SLOTS / 2);
      for (let i = 0; i < RING_SLOTS + 10; i += 1) {
        ledger.run({
          type: "capture",
          requestId: "open",
          fence: 1,
          usageEventId: `later ${i}`,
          size: usage(90, 1 + (i % 40)),
        });
        ledger.write();
        expect(newestSeq(sql) - checkpointSeq(sql)).toBeLessThan(RING_SLOTS);
      }
      expect(count(sql, "SELECT count(*) AS n FROM batch")).toBe(RING_SLOTS);
      expect(snapshot(recorded(sql))).toEqual(snapshot(ledger.state));
    }));

  it("comes when the rows after it weigh a million characters, or as much as it does", () =>
    onFreshStore((sql) => {
      const ledger = new Written(sql);
      const weights: number[] = [];
      for (let batch = 0; batch < 60; batch += 1) {
        const before = { seq: checkpointSeq(sql), tail: tailLength(sql) };
        for (let i = 0; i < 200; i += 1) ledger.reserve(`${batch}-${i}`);
        ledger.write();
        if (checkpointSeq(sql) !== before.seq) weights.push(before.tail);
      }
      const batchLength = 150_000; // what one write adds, roughly
      expect(weights.length).toBeGreaterThan(2);
      for (const weight of weights) expect(weight).toBeGreaterThan(1_000_000 - batchLength);
      // Geometric: each is due later than the one before, once the state is heavier than the least length.
      const checkpointLength = checkpointLengthOf(sql);
      expect(tailLength(sql)).toBeLessThan(Math.max(1_000_000, checkpointLength) + batchLength);
      expect(snapshot(recorded(sql))).toEqual(snapshot(ledger.state));
    }));

  it("that is shorter than the one it was written over is read alone", () =>
    onFreshStore((sql) => {
      const ledger = new Written(sql);
      const parts = () => count(sql, `SELECT count(*) AS n FROM checkpoint WHERE ${NEWEST}`);
      for (let i = 0; i < 6_000; i += 1) ledger.settled(`r${i}`);
      ledger.write();
      expect(parts()).toBeGreaterThan(1);
      ledger.tick(24 * 3_600_000); // all of those are forgotten, two for each new one
      for (let i = 0; parts() > 1 && i < 10_000; i += 1) {
        ledger.tick(1_000);
        ledger.settled(`later ${i}`);
        ledger.write();
      }
      expect(count(sql, "SELECT count(*) AS n FROM checkpoint")).toBeGreaterThan(parts());
      expect(snapshot(recorded(sql))).toEqual(snapshot(ledger.state));
    }));

  it("is counted, and the count is not lost by a restart right after it", () =>
    onFreshStore((sql) => {
      const ledger = new Written(sql);
      for (let i = 0; i < 3_000; i += 1) ledger.reserve(`r${i}`);
      ledger.write();
      expect(checkpointSeq(sql)).toBe(newestSeq(sql));
      const parts = count(sql, "SELECT count(*) AS n FROM checkpoint");
      const rows = newestSeq(sql) + parts;
      const restarted = new LedgerStore(sql);
      const state = restarted.load();
      restarted.write(turn(state, settle("r1", 1), 2_000_000).events.filter(isRecorded), state);
      expect(billOf(sql)).toBe(rows + 1);
    }));
});

describe("a restart", () => {
  it.each([3, 3_000])("refuses a record with a gap, at the end of %i leases", (leases) =>
    onFreshStore((sql) => {
      const ledger = new Written(sql);
      for (let i = 0; i < leases; i += 1) ledger.settled(`r${i}`);
      ledger.write();
      expect(checkpointSeq(sql) > 0).toBe(leases > 3);
      for (const id of ["a", "b", "c"]) {
        ledger.settled(id);
        ledger.write();
      }
      const gone = newestSeq(sql) - 1;
      sql.exec("DELETE FROM batch WHERE seq = ?", gone);
      expect(() => recorded(sql)).toThrow(`row ${gone - 1} is followed by ${gone + 1}`);
    }),
  );

  it("refuses the record of a later version, instead of guessing at it", () =>
    onFreshStore((sql) => {
      sql.exec("UPDATE schema SET version = 99");
      expect(() => new LedgerStore(sql)).toThrow(/newer weir: schema 99/);
    }));

  it("finds ten thousand open leases in a tenth of a second", () =>
    onFreshStore((sql) => {
      const ledger = new Written(sql);
      for (let i = 0; i < LEASES; i += 1) {
        ledger.reserve(`r${i}`);
        if (i % 64 === 63) ledger.write();
      }
      ledger.write();
      expect(medianLoadMs(sql)).toBeLessThan(RECOVERY_MS_MAX);
      expect(snapshot(recorded(sql))).toEqual(snapshot(ledger.state));
    }));

  it(
    "finds ten thousand open and ten thousand closed ones behind the longest tail, in a bounded time",
    () =>
      onFreshStore((sql) => {
        const ledger = new Written(sql);
        for (let i = 0; i < LEASES; i += 1) {
          ledger.reserve(`r${i}`);
          ledger.settled(`s${i}`);
          if (i % 64 === 63) ledger.write();
        }
        // Until just before the next checkpoint, when the tail is as long as it gets.
        const dueAt = checkpointLengthOf(sql) - 100_000;
        for (let i = 0; tailLength(sql) < dueAt; i += 64) {
          for (let j = 0; j < 64; j += 1) ledger.settled(`t${i + j}`);
          ledger.write();
        }
        expect(tailLength(sql)).toBeGreaterThan(2_000_000);
        expect(medianLoadMs(sql)).toBeLessThan(4 * RECOVERY_MS_MAX);
      }),
    20_000,
  );
});

function medianLoadMs(sql: SqlStorage, rounds = 5): number {
  const took: number[] = [];
  for (let round = 0; round < rounds; round += 1) {
    const startedAtMs = performance.now();
    new LedgerStore(sql).load();
    took.push(performance.now() - startedAtMs);
  }
  return took.toSorted((a, b) => a - b)[Math.floor(rounds / 2)] ?? Number.NaN;
}
