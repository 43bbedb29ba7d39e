import { describe, expect, it } from "vitest";
import type { LedgerEvent } from "../../src/ledger/types.ts";
import { bucket, policyOf, reserveOf, slots, usage } from "../support/ledger.ts";
import { soon } from "../support/soon.ts";
import {
  freshLedger,
  inside,
  type LedgerStub,
  newName,
  openSession,
  reserve,
  running,
  settle,
  stubOf,
} from "./ledgers.ts";

const WAIT_MS = 20_000;

/** One slot: the second caller waits for the first. */
const oneSlot = policyOf([bucket(10_000_000, 0), slots(1)]);

/** A token a millisecond. */
const refilling = policyOf([bucket(10_000, 60_000)]);

const waiting = (requestId: string, more: Parameters<typeof reserve>[1] = {}) =>
  reserve(requestId, { queueMs: WAIT_MS, ...more });

/** Somebody is inside, and somebody waits on a session. */
async function held(name = newName()) {
  const ledger = await freshLedger(name, oneSlot);
  await ledger.run(reserve("inside"));
  const session = openSession(ledger);
  expect(await session.reserve(waiting("waiter"))).toMatchObject({ type: "queued", requestId: "waiter" });
  return { ledger, session };
}

const queueOf = async (ledger: LedgerStub) => (await ledger.balance()).queue;

/** Everything without letting time decide: an outcome that is there, or "pending". */
async function now(outcome: Promise<LedgerEvent>): Promise<LedgerEvent | "pending"> {
  const pause = new Promise<"pending">((resolve) => setTimeout(resolve, 50, "pending"));
  return Promise.race([outcome, pause]);
}

describe("a grant", () => {
  it("comes to the waiter's session when the call inside leaves, and must be taken up", async () => {
    const { ledger, session } = await held();
    const granted = session.granted();
    expect(await now(granted)).toBe("pending");
    await ledger.run(settle("inside", 10));
    expect(await granted).toMatchObject({ type: "reserved", requestId: "waiter", state: "RESERVED" });
    expect(await session.run({ type: "dispatch", requestId: "waiter", fence: 1 })).toMatchObject({
      type: "dispatched",
    });
    expect(await queueOf(ledger)).toEqual({ length: 0, tokens: 0 });
  });

  it("is kept for a waiter who asks for it only afterwards", async () => {
    const { ledger, session } = await held();
    await ledger.run(settle("inside", 10));
    expect(await session.granted()).toMatchObject({ type: "reserved", requestId: "waiter" });
  });

  it("is in the record when the waiter hears of it", async () => {
    const ledger = await freshLedger(newName(), oneSlot);
    await inside(ledger, async (sql, instance) => {
      await instance.run(reserve("inside"));
      const session = instance.open();
      await session.reserve(waiting("waiter"));
      const rowsWhenHeard = session
        .granted()
        .then(() => sql.exec("SELECT events FROM batch ORDER BY seq DESC LIMIT 1").one()["events"]);
      void instance.run(reserve("refused")); // a write is under way
      await instance.run(settle("inside", 10));
      expect(await rowsWhenHeard).toContain('"waiter"');
    });
  });

  it("of a settled call reaches many waiters, in the order of their coming", async () => {
    const ledger = await freshLedger(newName(), policyOf([bucket(1_000, 0)]));
    await ledger.run(reserveOf("inside", 100, 900));
    const order: string[] = [];
    const sessions = [];
    for (const id of ["first", "second", "third"]) {
      const session = openSession(ledger);
      sessions.push(session);
      await session.reserve(reserveOf(id, 100, 200, { queueMs: WAIT_MS }));
      void session.granted().then((event) => order.push(`${event.type} ${id}`));
    }
    await ledger.run({ ...settle("inside", 0), usage: usage(100, 0) });
    await soon(() => expect(order).toHaveLength(3));
    expect(order).toEqual(["reserved first", "reserved second", "reserved third"]);
  });
});

describe("refill", () => {
  it("admits a waiter by itself, with no other call arriving", async () => {
    const ledger = await freshLedger(newName(), refilling);
    await ledger.run(reserveOf("inside", 5_000, 5_000));
    const session = openSession(ledger);
    const queued = await session.reserve(reserveOf("waiter", 100, 300, { queueMs: WAIT_MS }));
    const predictedWaitMs = queued.type === "queued" ? queued.predictedWaitMs : Number.NaN;
    const granted = await session.granted();
    expect(granted).toMatchObject({ type: "reserved", requestId: "waiter" });
    const waitedMs = granted.type === "reserved" ? granted.waitedMs : Number.NaN;
    expect(predictedWaitMs).toBeGreaterThan(0);
    expect(waitedMs).toBeGreaterThanOrEqual(predictedWaitMs);
    expect(waitedMs).toBeLessThan(1_500);
  });

  it("admits a waiter no later for a refund that came while it waited", async () => {
    const ledger = await freshLedger(newName(), refilling);
    await ledger.run(reserveOf("inside", 100, 8_900));
    const session = openSession(ledger);
    await session.reserve(reserveOf("waiter", 100, 9_900, { queueMs: WAIT_MS }));
    // Nine seconds of refill were missing; after this it is a fifth of one.
    await ledger.run({ ...settle("inside", 0), usage: usage(100, 100), basis: "exact" });
    const granted = await session.granted();
    expect(granted).toMatchObject({ type: "reserved" });
    expect(granted.type === "reserved" ? granted.waitedMs : Number.NaN).toBeLessThan(2_000);
  });

  it("admits who stood behind a large one, when that one has left", async () => {
    const ledger = await freshLedger(newName(), refilling);
    await ledger.run(reserveOf("inside", 100, 9_400));
    const large = openSession(ledger);
    await large.reserve(reserveOf("large", 100, 9_900, { queueMs: WAIT_MS }));
    const small = openSession(ledger);
    await small.reserve(reserveOf("small", 100, 1_000, { queueMs: WAIT_MS }));
    await large.run({ type: "leave", requestId: "large", cause: "caller_left" });
    const granted = await small.granted();
    expect(granted).toMatchObject({ type: "reserved", requestId: "small" });
    expect(granted.type === "reserved" ? granted.waitedMs : Number.NaN).toBeLessThan(2_000);
  });
});

describe("whoever goes", () => {
  it("by leaving is out of the queue at once and gets nothing later", async () => {
    const { ledger, session } = await held();
    expect(await session.run({ type: "leave", requestId: "waiter", cause: "caller_left" })).toMatchObject({
      type: "left",
    });
    expect(await queueOf(ledger)).toEqual({ length: 0, tokens: 0 });
    await ledger.run(settle("inside", 10));
    expect(await ledger.reservation("waiter")).toBeNull();
    expect((await ledger.balance()).inFlight.requests).toBe(0);
  });

  it("at its deadline is told so on time, by nobody's call", async () => {
    const ledger = await freshLedger(newName(), oneSlot);
    await ledger.run(reserve("inside"));
    const session = openSession(ledger);
    const startMs = Date.now();
    await session.reserve(waiting("waiter", { queueMs: 300 }));
    expect(await session.granted()).toMatchObject({ type: "refused", code: "deadline_exceeded" });
    expect(Date.now() - startMs).toBeGreaterThanOrEqual(299);
    expect(Date.now() - startMs).toBeLessThan(1_300);
    expect(await queueOf(ledger)).toEqual({ length: 0, tokens: 0 });
  });

  it("with its session, while it waits, leaves no trace in the queue", async () => {
    const { ledger, session } = await held();
    session[Symbol.dispose]();
    await soon(async () => expect(await queueOf(ledger)).toEqual({ length: 0, tokens: 0 }));
    await ledger.run(settle("inside", 10));
    expect(await ledger.reservation("waiter")).toBeNull();
  });

  it("with its session after the grant gives back the whole hold", async () => {
    const { ledger, session } = await held();
    await ledger.run(settle("inside", 10));
    expect(await session.granted()).toMatchObject({ type: "reserved" });
    session[Symbol.dispose]();
    await soon(async () => expect(await ledger.reservation("waiter")).toMatchObject({ state: "RELEASED" }));
    expect((await ledger.balance()).limits.map(({ level, held: h }) => [level, h])).toEqual([
      [9_999_890, 0],
      [1, 0],
    ]);
  });

  it("without its lease, which was kept, leaves that to its own deadline", async () => {
    const { ledger, session } = await held();
    await ledger.run(settle("inside", 10));
    await session.granted();
    await session.run({ type: "dispatch", requestId: "waiter", fence: 1 });
    await session.keep();
    session[Symbol.dispose]();
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(await ledger.run(running("waiter"))).toMatchObject({ type: "ran" });
    expect(await ledger.reservation("waiter")).toMatchObject({ state: "RUNNING" });
  });

  it("with the object, while it waits, hears it, and the queue begins anew and empty", async () => {
    const name = newName();
    const { ledger, session } = await held(name);
    const outcome = session.granted().then(
      () => "granted",
      () => "broken",
    );
    await inside(ledger, (_, __, state) => state.abort("the object was moved")).catch(() => {});
    expect(await outcome).toBe("broken");
    const again = stubOf(name);
    expect(await again.balance()).toMatchObject({
      queue: { length: 0, tokens: 0 },
      inFlight: { requests: 1, tokens: 150 },
    });
    const next = openSession(again);
    expect(await next.reserve(waiting("waiter"))).toMatchObject({ type: "queued" });
    await again.run(settle("inside", 10));
    expect(await next.granted()).toMatchObject({ type: "reserved", requestId: "waiter" });
  });
});
