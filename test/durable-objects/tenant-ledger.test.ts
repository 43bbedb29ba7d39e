import { evictDurableObject, runDurableObjectAlarm } from "cloudflare:test";
import { afterEach, describe, expect, it, vi } from "vitest";
import { LedgerStore, RING_SLOTS } from "../../durable-objects/ledger-store.ts";
import { SWEEP_LEASES_MAX } from "../../src/ledger/bounds.ts";
import type { Command } from "../../src/ledger/commands.ts";
import { lengthOf } from "../../src/ledger/state.ts";
import { turn } from "../../src/ledger/turn.ts";
import { isRecorded, type LedgerEvent } from "../../src/ledger/types.ts";
import { balanceOf } from "../../src/ledger/view.ts";
import { usage } from "../support/ledger.ts";
import {
  capture,
  freshLedger,
  inside,
  type LedgerStub,
  levels,
  newName,
  openSession,
  recorded,
  reserve,
  settle,
  stubOf,
  TTL_MS,
  timeless,
} from "./ledgers.ts";

const alarmOf = (ledger: LedgerStub) => inside(ledger, (_, __, state) => state.storage.getAlarm());

const dropAlarm = (ledger: LedgerStub) => inside(ledger, (_, __, state) => state.storage.deleteAlarm());

const DISK_FULL = "CREATE TRIGGER full BEFORE INSERT ON batch BEGIN SELECT RAISE(ABORT, 'disk full'); END";

afterEach(() => {
  vi.useRealTimers();
});

describe("restart", () => {
  it("PLA-06 finds the ledger as it was, mid-lease, and settles it once", async () => {
    const ledger = await freshLedger();
    await ledger.run(reserve("a"));
    await ledger.run(capture("a", "1", 7));
    const before = await ledger.balance();
    await evictDurableObject(ledger);
    const after = await ledger.balance();
    expect(timeless(after)).toEqual(timeless(before));
    expect(await ledger.reservation("a")).toMatchObject({ state: "PARTIALLY_SETTLED", capturedTokens: 107 });
    expect(await ledger.run(settle("a", 10))).toMatchObject({ type: "settled" });
    await evictDurableObject(ledger);
    expect(await ledger.run(settle("a", 10))).toMatchObject({ type: "unchanged" });
    expect(await levels(ledger)).toEqual([9_999_890, 100]);
  });

  it("folds a record that has gone round the ring, from its checkpoint", async () => {
    const ledger = await freshLedger();
    const before = await inside(ledger, (sql) => {
      const store = new LedgerStore(sql);
      const state = store.load();
      const row = (command: Command) =>
        store.write(turn(state, command, Date.now()).events.filter(isRecorded), state);
      for (let i = 0; i < RING_SLOTS / 2 + 150; i += 1) {
        row(reserve(`r${i}`));
        row(settle(`r${i}`, 1));
      }
      row(reserve("open"));
      expect(sql.exec("SELECT count(*) AS n FROM batch").one()["n"]).toBe(RING_SLOTS);
      expect(sql.exec("SELECT max(seq) AS n FROM batch").one()["n"]).toBe(RING_SLOTS + 302);
      return state;
    });
    await evictDurableObject(ledger);
    const after = await ledger.balance();
    expect(timeless(after)).toEqual(timeless(balanceOf(before, after.tenant)));
    expect(await ledger.reservation("open")).toMatchObject({ state: "DISPATCHED" });
    expect(await ledger.run(reserve("r0"))).toMatchObject({ type: "unchanged", state: "SETTLED" });
  });

  it("refuses a record with a gap, instead of folding what is not whole", async () => {
    const ledger = await freshLedger();
    for (const id of ["a", "b", "c"]) await ledger.run(reserve(id));
    await inside(ledger, (sql) => void sql.exec("DELETE FROM batch WHERE seq = 3"));
    await evictDurableObject(ledger);
    await expect(async () => {
      await ledger.balance();
    }).rejects.toThrow(/gap/);
  });

  it("PLA-18 a record that cannot be written resets the object: nobody sees what is not durable", async () => {
    const name = newName();
    const ledger = await freshLedger(name);
    await ledger.run(reserve("kept"));
    await inside(ledger, (sql) => void sql.exec(DISK_FULL));
    await expect(async () => {
      await ledger.run(reserve("lost"));
    }).rejects.toThrow();
    const fresh = stubOf(name);
    await inside(fresh, (sql) => void sql.exec("DROP TRIGGER full"));
    expect(await fresh.reservation("lost")).toBeNull();
    expect(await levels(fresh)).toEqual([9_999_850, 99]);
  });
});

describe("session", () => {
  it("carries open and reserve in one round trip", async () => {
    const ledger = await freshLedger();
    const session = openSession(ledger);
    expect(await session.reserve(reserve("a"))).toMatchObject({ type: "reserved", state: "DISPATCHED" });
    session[Symbol.dispose]();
  });

  it("freezes at its end what was dispatched, and releases what was not", async () => {
    const ledger = await freshLedger();
    for (const [id, dispatch, state] of [
      ["sent", true, "RECONCILING"],
      ["unsent", false, "RELEASED"],
    ] as const) {
      const session = openSession(ledger);
      await session.reserve(reserve(id, { dispatch }));
      session[Symbol.dispose]();
      await vi.waitFor(async () => expect(await ledger.reservation(id)).toMatchObject({ state }));
    }
    expect(await levels(ledger)).toEqual([9_999_850, 100]);
  });

  it("leaves a settled lease as it is", async () => {
    const ledger = await freshLedger();
    const session = openSession(ledger);
    await session.reserve(reserve("a"));
    await session.run(settle("a", 3));
    session[Symbol.dispose]();
    expect(await ledger.reservation("a")).toMatchObject({ state: "SETTLED", settledTokens: 103 });
  });
});

describe("alarm", () => {
  it("is set by the first lease and left alone by the next", async () => {
    vi.useFakeTimers({ toFake: ["Date"] });
    const startMs = Date.now();
    const ledger = await freshLedger();
    expect(await alarmOf(ledger)).toBeNull();
    await ledger.run(reserve("a"));
    expect(await alarmOf(ledger)).toBe(startMs + TTL_MS);
    vi.setSystemTime(startMs + 4_000);
    await ledger.run(reserve("b"));
    expect(await alarmOf(ledger)).toBe(startMs + TTL_MS);
  });

  it("PLA-07 sweeps what is due, re-arms for what is not, and may come twice", async () => {
    vi.useFakeTimers({ toFake: ["Date"] });
    const startMs = Date.now();
    const ledger = await freshLedger();
    await ledger.run(reserve("a"));
    vi.setSystemTime(startMs + 4_000);
    await ledger.run(reserve("b"));
    vi.setSystemTime(startMs + TTL_MS);
    expect(await runDurableObjectAlarm(ledger)).toBe(true);
    expect(await ledger.reservation("a")).toMatchObject({ state: "RECONCILING" });
    expect(await ledger.reservation("b")).toMatchObject({ state: "DISPATCHED" });
    expect(await alarmOf(ledger)).toBe(startMs + TTL_MS + 4_000);
    expect(await runDurableObjectAlarm(ledger)).toBe(true);
    expect(await ledger.reservation("b")).toMatchObject({ state: "DISPATCHED" });
  });

  it("PLA-08 is armed again by a restart, and not needed by the next call", async () => {
    vi.useFakeTimers({ toFake: ["Date"] });
    const startMs = Date.now();
    const ledger = await freshLedger();
    await ledger.run(reserve("a"));
    await dropAlarm(ledger);
    await evictDurableObject(ledger);
    vi.setSystemTime(startMs + TTL_MS + 1);
    expect(await ledger.run(reserve("b"))).toMatchObject({ type: "reserved" });
    expect(await ledger.reservation("a")).toMatchObject({ state: "RECONCILING" });
    expect(await alarmOf(ledger)).not.toBeNull();
  });

  it("comes back for a lease that was renewed, though it finds nothing due", async () => {
    vi.useFakeTimers({ toFake: ["Date"] });
    const startMs = Date.now();
    const ledger = await freshLedger();
    await ledger.run(reserve("a"));
    vi.setSystemTime(startMs + 6_000);
    await ledger.run({ type: "capture", requestId: "a", fence: 1, usageEventId: "1", size: usage(0, 0) });
    vi.setSystemTime(startMs + TTL_MS);
    expect(await runDurableObjectAlarm(ledger)).toBe(true);
    expect(await ledger.reservation("a")).toMatchObject({ state: "DISPATCHED" });
    expect(await alarmOf(ledger)).toBe(startMs + 6_000 + TTL_MS);
  });

  it("is armed by a restart alone, for an object that died before it could", async () => {
    const ledger = await freshLedger();
    await ledger.run(reserve("a"));
    await dropAlarm(ledger);
    await evictDurableObject(ledger);
    expect(await ledger.reservation("a")).toMatchObject({ state: "DISPATCHED" });
    expect(await alarmOf(ledger)).not.toBeNull();
  });

  it("PLA-07 takes a bounded number of leases at a time and comes back for the rest", async () => {
    vi.useFakeTimers({ toFake: ["Date"] });
    const startMs = Date.now();
    const ledger = await freshLedger();
    await inside(ledger, (_, instance) =>
      Promise.all(Array.from({ length: SWEEP_LEASES_MAX + 20 }, (__, i) => instance.run(reserve(`r${i}`)))),
    );
    vi.setSystemTime(startMs + TTL_MS);
    const reconciling = () => inside(ledger, (sql) => lengthOf(recorded(sql).reconciling));
    expect(await runDurableObjectAlarm(ledger)).toBe(true);
    expect(await reconciling()).toBe(SWEEP_LEASES_MAX);
    expect(await alarmOf(ledger)).toBe(startMs + TTL_MS + 1_000);
    expect(await runDurableObjectAlarm(ledger)).toBe(true);
    expect(await reconciling()).toBe(SWEEP_LEASES_MAX + 20);
  });

  it("PLA-07 that failed seven times in a row is made up for by the next life, and by the next call", async () => {
    vi.useFakeTimers({ toFake: ["Date"] });
    const startMs = Date.now();
    const name = newName();
    const ledger = await freshLedger(name);
    await ledger.run(reserve("a"));
    await inside(ledger, (sql) => void sql.exec(DISK_FULL));
    vi.setSystemTime(startMs + TTL_MS);
    for (let i = 0; i < 7; i += 1) {
      await expect(async () => {
        await inside(stubOf(name), (_, instance) => instance.alarm());
      }).rejects.toThrow();
    }
    const fresh = stubOf(name);
    await inside(fresh, (sql) => void sql.exec("DROP TRIGGER full"));
    expect(await alarmOf(fresh)).not.toBeNull();
    expect(await runDurableObjectAlarm(fresh)).toBe(true);
    expect(await inside(fresh, (sql) => recorded(sql).leases.get("a")?.state)).toBe("RECONCILING");
    expect(await fresh.run(settle("a", 1))).toMatchObject({ type: "settled" });
  });

  it("PLA-09 finds nothing to do in an empty ledger, and does not come back", async () => {
    const ledger = await freshLedger();
    await inside(ledger, (_, instance) => instance.alarm());
    expect(await alarmOf(ledger)).toBeNull();
  });

  it("PLA-09 of a ledger that was emptied finds nothing, and does not come back", async () => {
    const ledger = await freshLedger();
    await ledger.run(reserve("a"));
    await inside(ledger, (_, __, state) => state.storage.deleteAll());
    await evictDurableObject(ledger);
    await inside(ledger, (_, instance) => instance.alarm());
    expect(await alarmOf(ledger)).toBeNull();
    expect((await ledger.balance()).limits).toEqual([]);
    expect(await ledger.run(reserve("b"))).toMatchObject({ type: "refused", code: "need_policy" });
  });
});

describe("many callers", () => {
  it("LIM-02 a hundred at once get exactly what there is", async () => {
    const ledger = await freshLedger();
    const replies = await Promise.all(
      Array.from({ length: 150 }, async (_, i) => {
        const reply = (await ledger.run(reserve(`r${i}`))) as LedgerEvent;
        return reply.type;
      }),
    );
    expect(replies.filter((type) => type === "reserved")).toHaveLength(100);
  });

  it("a fence that is not the lease's is refused", async () => {
    const ledger = await freshLedger();
    await ledger.run(reserve("a"));
    expect(await ledger.run(settle("a", 1, 2))).toMatchObject({ type: "refused", code: "stale_fence" });
  });
});
