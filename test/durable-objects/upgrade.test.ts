/** A database that an earlier version has written is brought forward by the object that finds it. */
import { evictDurableObject } from "cloudflare:test";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { usage } from "../support/ledger.ts";
import record from "./fixtures/record-v1.json" with { type: "json" };
import { billOf, inside, type LedgerStub, newName, reserve, rowsOf, stubOf } from "./ledgers.ts";

/** As version 1 made them. */
const TABLES_V1 = `
  DROP TABLE IF EXISTS batch; DROP TABLE IF EXISTS checkpoint; DROP TABLE IF EXISTS schema;
  CREATE TABLE batch (slot INTEGER PRIMARY KEY, seq INTEGER NOT NULL, events TEXT NOT NULL);
  CREATE TABLE checkpoint (part INTEGER PRIMARY KEY, seq INTEGER NOT NULL, data TEXT NOT NULL);
  CREATE TABLE schema (id INTEGER PRIMARY KEY, version INTEGER NOT NULL);
  INSERT INTO schema (id, version) VALUES (1, 1);`;

const RING_SLOTS_V1 = 4_096;

/** An object on the disk as version 1 left it; its memory begins with the next call. */
async function storedByV1(checkpointParts = 1): Promise<LedgerStub> {
  const ledger = stubOf(newName());
  await inside(ledger, (sql) => {
    sql.exec(TABLES_V1);
    const { seq, data } = record.checkpoint;
    const length = Math.ceil(data.length / checkpointParts);
    for (let part = 0; part < checkpointParts; part += 1) {
      const cut = data.slice(part * length, (part + 1) * length);
      sql.exec("INSERT INTO checkpoint (part, seq, data) VALUES (?, ?, ?)", part, seq, cut);
    }
    for (const { seq: row, events } of record.batches)
      sql.exec("INSERT INTO batch (slot, seq, events) VALUES (?, ?, ?)", row % RING_SLOTS_V1, row, events);
  });
  await evictDurableObject(ledger);
  return ledger;
}

const version = (ledger: LedgerStub) =>
  inside(ledger, (sql) => sql.exec("SELECT version FROM schema").one()["version"]);

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["Date"] });
  vi.setSystemTime(record.atMs);
});
afterEach(() => {
  vi.useRealTimers();
});

const reservations = record.reservations as unknown as readonly [string, object | null][];

/** What version 1 said of itself; later members are beside it. */
async function expectAsItWas(ledger: LedgerStub) {
  const { tenant: _, limits, ...counts } = record.balance;
  const balance = await ledger.balance();
  expect(balance).toMatchObject(counts);
  expect(balance.limits).toHaveLength(limits.length);
  for (const [index, { scope: __, ...limit }] of limits.entries())
    expect(balance.limits[index]).toMatchObject(limit);
  for (const [id, reservation] of reservations) {
    const found = await ledger.reservation(id);
    if (reservation === null) expect(found).toBeNull();
    else expect(found).toEqual(reservation);
  }
}

it.each([1, 3])(
  "a record of version 1 tells the same as it did, its checkpoint in %i parts",
  async (parts) => {
    const ledger = await storedByV1(parts);
    await expectAsItWas(ledger);
    expect(await version(ledger)).toBe(3);
  },
);

it("a record that was brought forward is found again by the next life", async () => {
  const ledger = await storedByV1();
  await expectAsItWas(ledger);
  await evictDurableObject(ledger);
  await expectAsItWas(ledger);
});

it("a ledger that was brought forward goes on: its leases are settled, its closed ids known, its bill begun", async () => {
  const ledger = await storedByV1();
  const before = await ledger.balance();
  expect(
    await ledger.run({
      type: "settle",
      requestId: "running",
      fence: 1,
      usage: usage(100, 50),
      basis: "exact",
    }),
  ).toMatchObject({ type: "settled", refundedTokens: 350 });
  expect(
    await ledger.run({
      type: "settle",
      requestId: "partial",
      fence: 1,
      usage: usage(100, 450),
      basis: "exact",
    }),
  ).toMatchObject({ type: "settled", overrunTokens: 50 });
  expect(await ledger.run({ type: "resolve", requestId: "frozen", usage: usage(100, 100) })).toMatchObject({
    type: "settled",
  });
  expect(
    await ledger.run({ type: "settle", requestId: "under", fence: 1, usage: usage(100, 20), basis: "exact" }),
  ).toMatchObject({ type: "corrected", deltaTokens: 10 });
  expect(await ledger.run(reserve("early"))).toMatchObject({ type: "refused", code: "invalid_state" });
  expect(await ledger.run(reserve("new"))).toMatchObject({ type: "reserved" });
  const { limits, inFlight, reconciling } = await ledger.balance();
  expect({ inFlight, reconciling }).toEqual({
    inFlight: { requests: 3, tokens: 350 },
    reconciling: { count: 0, tokens: 0 },
  });
  // Given back: 350, less 50, 300, less 10 and the 150 of the new one; and an hour's refill did not pass.
  expect(limits[0]).toMatchObject({
    level: (before.limits[0]?.level ?? 0) + 350 - 50 + 300 - 10 - 150,
    held: 350,
    settledTotal: 247 + 150 + 550 + 200 + 10,
  });
  expect(await inside(ledger, billOf)).toBeGreaterThanOrEqual(5);
  await evictDurableObject(ledger);
  expect((await ledger.balance()).limits).toEqual(limits);
  const types = (await inside(ledger, rowsOf)).flat().map(({ type }) => type);
  expect(types.slice(-3)).toEqual(["corrected", "refused", "reserved"]);
});

it("a record that cannot be brought forward is left as it was, and says why each time", async () => {
  const ledger = await storedByV1();
  // It took the object to be there to break it: the rows are of version 1 again.
  await inside(ledger, (sql) => {
    sql.exec(TABLES_V1);
    sql.exec("INSERT INTO batch (slot, seq, events) VALUES (1, 1, '[{')");
  });
  await evictDurableObject(ledger);
  for (let life = 0; life < 2; life += 1) {
    await expect(async () => {
      await ledger.balance();
    }).rejects.toThrow(/JSON/);
  }
});
