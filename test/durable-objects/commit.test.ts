import { evictDurableObject } from "cloudflare:test";
import { describe, expect, it } from "vitest";
import type { TenantLedger } from "../../durable-objects/tenant-ledger.ts";
import { REFUSALS_PER_BATCH_MAX } from "../../src/ledger/bounds.ts";
import { evolve } from "../../src/ledger/evolve.ts";
import { emptyState, type LedgerState } from "../../src/ledger/state.ts";
import type { LedgerEvent, RecordedEvent } from "../../src/ledger/types.ts";
import { type Balance, balanceOf } from "../../src/ledger/view.ts";
import { bucket, policyOf, slots } from "../support/ledger.ts";
import { soon } from "../support/soon.ts";
import {
  billOf,
  capture,
  freshLedger,
  inside,
  levels,
  newName,
  recorded,
  reserve,
  rowsOf,
  running,
  settle,
  stubOf,
  timeless,
  typesOf,
} from "./ledgers.ts";

/** A rider's longest wait, and the time it takes to look. */
const RIDDEN_MS = 1_300;

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

const rowCount = (sql: SqlStorage) => rowsOf(sql).length;

/** Puts a write under way, so that what is called in the same tick gathers for the next. */
function underWay(instance: TenantLedger): Promise<LedgerEvent> {
  return instance.run(reserve("under way"));
}

const isAbout = (id: string) => (event: RecordedEvent) => "requestId" in event && event.requestId === id;

/** The state as the rows tell it after this request's event, which must be among them. */
function foldUpTo(rows: readonly (readonly RecordedEvent[])[], id: string): LedgerState {
  const events = rows.flat();
  const last = events.findIndex(isAbout(id));
  if (last < 0) throw new Error(`${id} is not in the record`);
  const state = emptyState();
  for (const event of events.slice(0, last + 1)) evolve(state, event);
  return state;
}

describe("I8", () => {
  it("a read while events gather tells what the record tells when it answers, up to what was read", async () => {
    const ledger = await freshLedger();
    await inside(ledger, async (sql, instance) => {
      const answers: Promise<unknown>[] = [underWay(instance)];
      const reads: Promise<readonly [Balance, LedgerState]>[] = [];
      for (const id of ["a", "b", "c"]) {
        answers.push(instance.run(reserve(id)));
        reads.push(instance.balance().then((told) => [told, foldUpTo(rowsOf(sql), id)]));
      }
      expect(rowCount(sql)).toBe(2); // the policy, and what is under way
      for (const [told, state] of await Promise.all(reads))
        expect(timeless(told)).toEqual(timeless(balanceOf(state, told.tenant)));
      await Promise.all(answers);
    });
    expect(await levels(ledger)).toEqual([9_999_400, 96]);
  });

  it("a look at a lease, a repeat and a preview wait for the write just as well", async () => {
    const ledger = await freshLedger();
    await inside(ledger, async (sql, instance) => {
      const first = underWay(instance);
      const second = instance.run(reserve("a"));
      const isWritten = () => rowsOf(sql).flat().some(isAbout("a"));
      const asked = [
        instance.reservation("a"),
        instance.run(reserve("a")),
        instance.preview(reserve("b")),
        instance.act(settle("a", 1), "nobody's"),
      ].map((answer: Promise<unknown>) => answer.then(isWritten));
      expect(isWritten()).toBe(false);
      expect(await Promise.all(asked)).toEqual([true, true, true, true]);
      await Promise.all([first, second]);
    });
  });

  it("no answer leaves before the write that carries its event has begun", async () => {
    const ledger = await freshLedger();
    await inside(ledger, async (sql, instance) => {
      const written = async (id: string) => {
        const { type } = await instance.run(reserve(id));
        return type === "reserved" && rowsOf(sql).flat().some(isAbout(id));
      };
      const answers = Array.from({ length: 50 }, (_, i) => written(`r${i}`));
      expect(rowCount(sql)).toBe(2);
      expect(await Promise.all(answers)).toEqual(Array.from({ length: 50 }, () => true));
      // One went at once, and the other forty-nine together.
      expect(rowsOf(sql).map(({ length }) => length)).toEqual([1, 1, 49]);
    });
  });

  it("a write that fails takes all that was not written with it, and nothing that was", async () => {
    const name = newName();
    const ledger = await freshLedger(name);
    const outcomes = await inside(ledger, async (sql, instance) => {
      sql.exec(
        `CREATE TRIGGER full BEFORE INSERT ON batch WHEN NEW.events LIKE '%"lost"%'
         BEGIN SELECT RAISE(ABORT, 'disk full'); END`,
      );
      const calls = [
        underWay(instance),
        instance.run(reserve("lost")),
        instance.run(reserve("company")),
        instance.balance(),
      ];
      const settled = calls.map((call: Promise<unknown>) =>
        Promise.race([
          call.then(
            () => "answered",
            () => "failed",
          ),
          pause(300).then(() => "never"),
        ]),
      );
      return Promise.all(settled);
    }).catch(() => "reset");
    // The reset may end the test's own call as well; either way only the first was answered.
    expect(["reset", "answered,never,never,never"]).toContain(String(outcomes));
    const fresh = stubOf(name);
    await inside(fresh, (sql) => void sql.exec("DROP TRIGGER full"));
    expect(await fresh.reservation("lost")).toBeNull();
    expect(await fresh.reservation("company")).toBeNull();
    expect(await fresh.reservation("under way")).toMatchObject({ state: "DISPATCHED" });
    expect(await levels(fresh)).toEqual([9_999_850, 99]);
  });

  it("callers of a write that fails are told so, from whichever batch they are", async () => {
    const name = newName();
    const ledger = await freshLedger(name);
    await inside(ledger, (sql) => {
      sql.exec(
        `CREATE TRIGGER full BEFORE INSERT ON batch WHEN NEW.seq > 3
         BEGIN SELECT RAISE(ABORT, 'disk full'); END`,
      );
    });
    const answered: string[] = [];
    const failed: string[] = [];
    await Promise.all(
      Array.from({ length: 12 }, async (_, i) => {
        try {
          const event = (await ledger.run(reserve(`r${i}`))) as LedgerEvent;
          if (event.type === "reserved") answered.push(`r${i}`);
        } catch {
          failed.push(`r${i}`);
        }
      }),
    );
    expect(answered.length + failed.length).toBe(12);
    expect(failed.length).toBeGreaterThan(0);
    const fresh = stubOf(name);
    await inside(fresh, (sql) => void sql.exec("DROP TRIGGER full"));
    for (const id of answered) expect(await fresh.reservation(id)).not.toBeNull();
    expect(await inside(fresh, rowCount)).toBeLessThanOrEqual(3);
  });
});

describe("riders", () => {
  it("go with the next write, in their order", async () => {
    const ledger = await freshLedger();
    await ledger.run(reserve("a"));
    await ledger.run(running("a"));
    await ledger.run(capture("a", "1", 10));
    await ledger.run(reserve("too large", { inputTokens: 20_000_000 }));
    expect(await inside(ledger, rowCount)).toBe(2);
    await ledger.run(settle("a", 20));
    expect(typesOf(await inside(ledger, rowsOf)).at(-1)).toEqual(["ran", "captured", "refused", "settled"]);
    await pause(RIDDEN_MS);
    expect(await inside(ledger, rowCount)).toBe(3);
  });

  it("are written by themselves within about a second, when nothing else is", async () => {
    for (const rider of [capture("a", "1", 10), reserve("too large", { inputTokens: 20_000_000 })]) {
      const ledger = await freshLedger();
      await ledger.run(reserve("a"));
      await ledger.run(rider);
      await pause(500);
      expect(await inside(ledger, rowCount)).toBe(2);
      await soon(async () => expect(await inside(ledger, rowCount)).toBe(3), RIDDEN_MS - 500);
    }
  });

  it("that say no more than that a call runs never cost a row", async () => {
    const ledger = await freshLedger();
    await ledger.run(reserve("a"));
    await ledger.run(running("a"));
    await pause(RIDDEN_MS);
    expect(await inside(ledger, rowCount)).toBe(2);
  });

  it("that say no more than that a call runs cost no row, whatever rode before them", async () => {
    const ledger = await freshLedger();
    await ledger.run(reserve("a"));
    await ledger.run(capture("a", "1", 10));
    await ledger.run(reserve("b")); // the capture has gone
    await ledger.run(running("b"));
    await pause(RIDDEN_MS);
    expect(typesOf(await inside(ledger, rowsOf))).toEqual([
      ["policy_set"],
      ["reserved"],
      ["captured", "reserved"],
    ]);
  });

  it("gathered while a write is under way follow it", async () => {
    const ledger = await freshLedger();
    await inside(ledger, async (sql, instance) => {
      const write = underWay(instance);
      const rider = instance.run(capture("under way", "1", 10));
      expect(await rider).toMatchObject({ type: "captured" });
      await write;
      await soon(() => expect(typesOf(rowsOf(sql)).at(-1)).toEqual(["captured"]), RIDDEN_MS);
    });
  });

  it("of one kind are bounded: a flood of refusals leaves a trickle in the record", async () => {
    const ledger = await freshLedger(newName(), policyOf([bucket(10_000_000, 0), slots(1)]));
    await inside(ledger, async (sql, instance) => {
      const write = underWay(instance);
      const flood = Array.from({ length: 500 }, (_, i) => instance.run(reserve(`r${i}`)));
      const last = instance.run(settle("under way", 1));
      const replies = await Promise.all(flood);
      expect(replies.every(({ type }) => type === "refused")).toBe(true);
      await Promise.all([write, last]);
      const written = rowsOf(sql).at(-1) ?? [];
      expect(written.filter(({ type }) => type === "refused")).toHaveLength(REFUSALS_PER_BATCH_MAX);
      expect(written.at(-1)).toMatchObject({ type: "settled" });
    });
  });
});

describe("rows written", () => {
  it("by calls that come one after another are two each, running and a capture included", async () => {
    const ledger = await freshLedger();
    const before = await inside(ledger, billOf);
    const calls = 60;
    for (let i = 0; i < calls; i += 1) {
      await ledger.run(reserve(`r${i}`));
      await ledger.run(running(`r${i}`));
      await ledger.run(capture(`r${i}`, "1", 10));
      await ledger.run(settle(`r${i}`, 20));
    }
    const rows = (await inside(ledger, billOf)) - before;
    expect(rows).toBeGreaterThanOrEqual(2 * calls);
    expect(rows).toBeLessThanOrEqual(2.1 * calls);
  });

  it("by sixty-four callers at once are well below one each", async () => {
    const ledger = await freshLedger();
    const before = await inside(ledger, billOf);
    const each = 8;
    await Promise.all(
      Array.from({ length: 64 }, async (_, caller) => {
        for (let i = 0; i < each; i += 1) {
          expect(await ledger.run(reserve(`${caller}-${i}`))).toMatchObject({ type: "reserved" });
          await ledger.run(settle(`${caller}-${i}`, 20));
        }
      }),
    );
    const rows = (await inside(ledger, billOf)) - before;
    expect(rows / (64 * each)).toBeLessThan(0.8);
    expect(await levels(ledger)).toEqual([10_000_000 - 64 * each * 120, 100]);
  });

  it("are counted as the database counts them, and the count survives a restart", async () => {
    const ledger = await freshLedger();
    for (let i = 0; i < 5; i += 1) {
      await ledger.run(reserve(`r${i}`));
      await ledger.run(settle(`r${i}`, 20));
    }
    // A policy, five times two, and the alarm of the first lease.
    expect(await inside(ledger, billOf)).toBe(12);
    await evictDurableObject(ledger);
    await ledger.run(reserve("after"));
    // The restart had nothing to arm; the new lease had.
    await ledger.run(settle("after", 20));
    expect(await inside(ledger, billOf)).toBe(15);
  });
});

it("a batch longer than a row takes several, which a restart reads as one", async () => {
  const ledger = await freshLedger(newName(), policyOf([bucket(10_000_000, 0)]));
  const crowd = 1_500;
  await inside(ledger, async (sql, instance) => {
    const calls = [
      underWay(instance),
      ...Array.from({ length: crowd }, (_, i) => instance.run(reserve(`r${i}`))),
    ];
    await Promise.all(calls);
    const rows = sql
      .exec<{ length: number }>("SELECT length(events) AS length FROM batch ORDER BY seq")
      .toArray();
    expect(rows.length).toBeGreaterThan(3);
    for (const { length } of rows) expect(length).toBeLessThanOrEqual(500_100);
    const { limits, inFlight } = await instance.balance();
    const after = balanceOf(recorded(sql), "acme");
    expect(after.inFlight).toEqual(inFlight);
    expect(after.inFlight.requests).toBe(crowd + 1);
    expect(after.limits.map(({ level }) => level)).toEqual(limits.map(({ level }) => level));
  });
});

it("a batch of several rows and a checkpoint is written whole or not at all", async () => {
  const checkpointSeq = (sql: SqlStorage) =>
    sql.exec("SELECT coalesce(max(seq), 0) AS n FROM checkpoint").one()["n"];
  const crowd = (instance: TenantLedger) => [
    underWay(instance),
    ...Array.from({ length: 3_000 }, (_, i) => instance.run(reserve(`r${i}`))),
  ];
  const set = policyOf([bucket(10_000_000, 0)]);
  const [whole, name] = [newName(), newName()];
  await inside(await freshLedger(whole, set), (_, instance) => Promise.all(crowd(instance)));
  expect(await inside(stubOf(whole), checkpointSeq)).toBeGreaterThan(3);

  await inside(await freshLedger(name, set), async (sql, instance) => {
    sql.exec(
      `CREATE TRIGGER full BEFORE INSERT ON batch WHEN NEW.seq > 3
       BEGIN SELECT RAISE(ABORT, 'disk full'); END`,
    );
    await Promise.race([Promise.allSettled(crowd(instance)), pause(300)]);
  }).catch(() => {});
  const fresh = stubOf(name);
  expect(await inside(fresh, (sql) => [rowCount(sql), checkpointSeq(sql)])).toEqual([2, 0]);
  expect((await fresh.balance()).inFlight.requests).toBe(1);
});
