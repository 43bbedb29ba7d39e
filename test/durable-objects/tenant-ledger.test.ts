import { evictDurableObject, runDurableObjectAlarm, runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { afterEach, describe, expect, it, vi } from "vitest";
import { RING_SLOTS } from "../../durable-objects/ledger-store.ts";
import type { TenantLedger } from "../../durable-objects/tenant-ledger.ts";
import type { Reserve } from "../../src/ledger/commands.ts";
import type { LedgerEvent } from "../../src/ledger/types.ts";
import { bucket, policyOf, reserveOf, slots, usage } from "../support/ledger.ts";

const TTL_MS = 10_000;
const policy = policyOf([bucket(10_000_000, 0), slots(100)], {
  leaseTtlMs: TTL_MS,
  reconcileAgeMaxMs: 60_000,
});

let named = 0;

/** A ledger of its own for each test: storage is shared within a file. */
async function freshLedger() {
  named += 1;
  const stub = env.TENANT_LEDGER.getByName(`v1:tenant-${named}`);
  await stub.run({ type: "set_policy", policy });
  return stub;
}

const reserve = (requestId: string, more: Partial<Reserve> = {}): Reserve =>
  reserveOf(requestId, 100, 50, more);

const settle = (requestId: string, outputTokens: number, fence = 1) =>
  ({ type: "settle", requestId, fence, usage: usage(100, outputTokens), basis: "under_estimate" }) as const;

const levels = async (stub: DurableObjectStub<TenantLedger>) => {
  const { limits } = await stub.balance();
  return limits.map(({ level }) => level);
};

const alarmOf = (stub: DurableObjectStub<TenantLedger>) =>
  runInDurableObject(stub, (_, state) => state.storage.getAlarm());

afterEach(() => {
  vi.useRealTimers();
});

describe("restart", () => {
  it("PLA-06 finds the ledger as it was, mid-lease, and settles it once", async () => {
    const ledger = await freshLedger();
    await ledger.run(reserve("a"));
    await ledger.run({ type: "capture", requestId: "a", fence: 1, usageEventId: "1", size: usage(100, 7) });
    const before = await ledger.balance();
    await evictDurableObject(ledger);
    const after = await ledger.balance();
    expect({ ...after, atMs: 0 }).toEqual({ ...before, atMs: 0 });
    expect(await ledger.reservation("a")).toMatchObject({ state: "PARTIALLY_SETTLED", capturedTokens: 107 });
    expect(await ledger.run(settle("a", 10))).toMatchObject({ type: "settled" });
    await evictDurableObject(ledger);
    expect(await ledger.run(settle("a", 10))).toMatchObject({ type: "unchanged" });
    expect(await levels(ledger)).toEqual([9_999_890, 100]);
  });

  it("folds a record that has gone round the ring, from its checkpoint", async () => {
    const ledger = await freshLedger();
    const turns = RING_SLOTS + 300;
    await runInDurableObject(ledger, (instance: TenantLedger) => {
      for (let i = 0; i < turns / 2; i += 1) {
        instance.run(reserve(`r${i}`));
        instance.run(settle(`r${i}`, 1));
      }
      instance.run(reserve("open"));
    });
    const rows = await runInDurableObject(ledger, (_, state) => [
      state.storage.sql.exec("SELECT count(*) AS n FROM batch").one()["n"],
      state.storage.sql.exec("SELECT max(seq) AS n FROM checkpoint").one()["n"],
    ]);
    expect(rows).toEqual([RING_SLOTS, RING_SLOTS]);
    const before = await ledger.balance();
    await evictDurableObject(ledger);
    const after = await ledger.balance();
    expect({ ...after, atMs: 0 }).toEqual({ ...before, atMs: 0 });
    expect(await ledger.reservation("open")).toMatchObject({ state: "DISPATCHED" });
  });

  it("reads a checkpoint that is shorter than the one it was written over", async () => {
    vi.useFakeTimers({ toFake: ["Date"] });
    const startMs = Date.now();
    const ledger = await freshLedger();
    const newestParts = () =>
      runInDurableObject(ledger, (_, state) => {
        const count = "SELECT count(*) AS n FROM checkpoint WHERE seq = (SELECT max(seq) FROM checkpoint)";
        return Number(state.storage.sql.exec(count).one()["n"]);
      });
    await runInDurableObject(ledger, (instance: TenantLedger) => {
      for (let i = 0; i < RING_SLOTS / 2; i += 1) {
        instance.run(reserve(`r${i}`));
        instance.run(settle(`r${i}`, 1));
      }
    });
    expect(await newestParts()).toBeGreaterThan(1);
    vi.setSystemTime(startMs + 24 * 3_600_000); // all of those are forgotten
    await runInDurableObject(ledger, (instance: TenantLedger) => {
      instance.run(reserve("open"));
      for (let i = 0; i < RING_SLOTS / 2; i += 1) {
        instance.run({
          type: "capture",
          requestId: "open",
          fence: 1,
          usageEventId: `${i}`,
          size: usage(i, 0),
        });
      }
    });
    expect(await newestParts()).toBe(1);
    const before = await ledger.balance();
    await evictDurableObject(ledger);
    expect(await ledger.balance()).toEqual(before);
  });

  it("refuses a record with a gap, instead of folding what is not whole", async () => {
    const ledger = await freshLedger();
    for (const id of ["a", "b", "c"]) await ledger.run(reserve(id));
    await runInDurableObject(ledger, (_, state) => {
      state.storage.sql.exec("DELETE FROM batch WHERE seq = 3");
    });
    await evictDurableObject(ledger);
    await expect(async () => {
      await ledger.balance();
    }).rejects.toThrow(/gap/);
  });

  it("PLA-18 a record that cannot be written resets the object: nobody sees what is not durable", async () => {
    const ledger = await freshLedger();
    await ledger.run(reserve("kept"));
    const failing = (sql: string) =>
      runInDurableObject(ledger, (_, state) => void state.storage.sql.exec(sql));
    await failing("CREATE TRIGGER full BEFORE INSERT ON batch BEGIN SELECT RAISE(ABORT, 'disk full'); END");
    await expect(async () => {
      await ledger.run(reserve("lost"));
    }).rejects.toThrow();
    const name = `v1:tenant-${named}`;
    await runInDurableObject(
      env.TENANT_LEDGER.getByName(name),
      (_, state) => void state.storage.sql.exec("DROP TRIGGER full"),
    );
    const fresh = env.TENANT_LEDGER.getByName(name);
    expect(await fresh.reservation("lost")).toBeNull();
    expect(await levels(fresh)).toEqual([9_999_850, 99]);
  });
});

describe("session", () => {
  it("carries open and reserve in one round trip", async () => {
    const ledger = await freshLedger();
    const session = ledger.open() as unknown as {
      reserve(command: Reserve): Promise<LedgerEvent>;
    } & Disposable;
    expect(await session.reserve(reserve("a"))).toMatchObject({ type: "reserved", state: "DISPATCHED" });
    session[Symbol.dispose]();
  });

  it("freezes at its end what was dispatched, and releases what was not", async () => {
    const ledger = await freshLedger();
    for (const [id, dispatch, state] of [
      ["sent", true, "RECONCILING"],
      ["unsent", false, "RELEASED"],
    ] as const) {
      const session = ledger.open() as unknown as {
        reserve(command: Reserve): Promise<LedgerEvent>;
      } & Disposable;
      await session.reserve(reserve(id, { dispatch }));
      session[Symbol.dispose]();
      await vi.waitFor(async () => expect(await ledger.reservation(id)).toMatchObject({ state }));
    }
    expect(await levels(ledger)).toEqual([9_999_850, 100]);
  });

  it("leaves a settled lease as it is", async () => {
    const ledger = await freshLedger();
    const session = ledger.open() as unknown as {
      reserve(command: Reserve): Promise<LedgerEvent>;
      run(command: ReturnType<typeof settle>): Promise<LedgerEvent>;
    } & Disposable;
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
    await runInDurableObject(ledger, (_, state) => state.storage.deleteAlarm());
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
    await runInDurableObject(ledger, (_, state) => state.storage.deleteAlarm());
    await evictDurableObject(ledger);
    expect(await ledger.reservation("a")).toMatchObject({ state: "DISPATCHED" });
    expect(await alarmOf(ledger)).not.toBeNull();
  });

  it("PLA-09 finds nothing to do in an empty ledger, and does not come back", async () => {
    const ledger = await freshLedger();
    await runInDurableObject(ledger, (instance: TenantLedger) => instance.alarm());
    expect(await alarmOf(ledger)).toBeNull();
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
