import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { isClosed, type LedgerState, tokensOf } from "../../src/ledger/state.ts";
import { sweep } from "../../src/ledger/turn.ts";
import type { Reservation } from "../../src/ledger/view.ts";
import { balanceOf } from "../../src/ledger/view.ts";
import { foldedRecord } from "../support/record.ts";
import { soon } from "../support/soon.ts";
import { limitOf, type Stack, startStack, TENANT, told } from "../support/stack.ts";

const STREAMS = 50;
const LEASE_TTL_MS = 2_000;
const RECONCILE_AGE_MAX_MS = 3_000;

/** What the fold of the record says of that instant: the object sweeps before it answers. */
function balanceAt(state: LedgerState, atMs: number) {
  sweep(state, atMs);
  state.nowMs = atMs;
  return balanceOf(state, TENANT);
}

describe("a kill -9 in the middle of fifty streams", () => {
  let stack: Stack;
  beforeAll(async () => {
    stack = await startStack({
      policy: { leaseTtlMs: LEASE_TTL_MS, reconcileAgeMaxMs: RECONCILE_AGE_MAX_MS },
    });
  });
  afterAll(() => stack?.stop());

  it("I8 loses no lease to a kill -9, frees their slots after their time and charges them at their age limit", async () => {
    const responses = await Promise.all(
      Array.from({ length: STREAMS }, () =>
        stack.request({ model: told("tokens=90&slow=200"), stream: true }),
      ),
    );
    const cut = Promise.allSettled(responses.map((response) => response.text()));
    const held = responses.reduce((sum, { headers }) => sum + Number(headers.get("x-weir-held-tokens")), 0);
    expect(responses.map(({ status }) => status)).toEqual(responses.map(() => 200));
    // Some have been captured by now, so the record holds more than their beginnings.
    await soon(async () => expect((await stack.balance()).inFlight.tokens).toBeLessThan(held));
    await stack.kill9();
    for (const { status } of await cut) expect(status).toBe("rejected");
    const record = await foldedRecord(stack.stateDir);

    await stack.restart();
    const found = await stack.balance();
    expect(found.inFlight.requests + found.reconciling.count).toBe(STREAMS);
    expect(limitOf(found)).toMatchObject({ held, settledTotal: 0 });
    expect(found).toEqual(balanceAt(record, found.atMs));

    const frozen = await soon(async () => {
      const balance = await stack.balance();
      expect(balance).toMatchObject({
        inFlight: { requests: 0, tokens: 0 },
        reconciling: { count: STREAMS, tokens: held },
      });
      return balance;
    }, LEASE_TTL_MS + 1_000);
    expect(limitOf(frozen)).toMatchObject({ held, settledTotal: 0 });
    expect(limitOf(frozen, "slots")).toMatchObject({ held: 0, level: 200 });

    const settled = await soon(async () => {
      const balance = await stack.balance();
      expect(balance.reconciling).toEqual({ count: 0, tokens: 0 });
      return balance;
    }, RECONCILE_AGE_MAX_MS + 1_000);
    expect(limitOf(settled)).toMatchObject({ held: 0, settledTotal: held });
    expect(limitOf(settled, "requests")).toMatchObject({ held: 0, settledTotal: STREAMS });
    expect(settled).toEqual(balanceAt(await foldedRecord(stack.stateDir), settled.atMs));
  });
});

const KILLS = 20;
const CALLERS = 40;
const SEED = 20_261_130;

/** Numbers in [0, 1), the same in each run. */
function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

/** What callers were told, and may therefore rely on. */
interface Acknowledged {
  readonly reserved: Set<string>;
  readonly dispatched: Set<string>;
  readonly released: Set<string>;
  /** In tokens. */
  readonly settled: Map<string, number>;
}

/** Callers of all kinds, until the gateway goes. */
class Load {
  readonly told: Acknowledged = {
    reserved: new Set(),
    dispatched: new Set(),
    released: new Set(),
    settled: new Map(),
  };
  readonly #stack: Stack;
  readonly #random: () => number;

  constructor(stack: Stack, random: () => number) {
    this.#stack = stack;
    this.#random = random;
  }

  /** Resolves once every caller has noticed. */
  async run(): Promise<void> {
    await Promise.all(Array.from({ length: CALLERS }, (_, i) => this.#call(i)));
  }

  async #call(number: number): Promise<void> {
    for (;;) {
      try {
        if (number % 2 === 0) await this.#proxied(number % 4 === 0);
        else await this.#own();
      } catch {
        return; // nobody answers any more
      }
    }
  }

  async #proxied(stream: boolean): Promise<void> {
    const response = await this.#stack.request({ stream, max_tokens: 20 });
    const id = response.headers.get("x-weir-request-id");
    if (response.status === 200 && id !== null) this.told.reserved.add(id);
    await response.text();
  }

  async #own(): Promise<void> {
    const made = await this.#post("", { model: "gpt-4o-mini", inputTokens: 10, maxOutputTokens: 90 });
    if (made === null) return;
    const { id, fence } = made;
    this.told.reserved.add(id);
    if (this.#random() < 0.2) {
      if ((await this.#post(`/${id}/release`, { fence })) !== null) this.told.released.add(id);
      return;
    }
    if ((await this.#post(`/${id}/dispatch`, { fence })) !== null) this.told.dispatched.add(id);
    const outputTokens = Math.floor(this.#random() * 120);
    const settled = await this.#post(`/${id}/settle`, { fence, usage: { inputTokens: 10, outputTokens } });
    if (settled !== null) this.told.settled.set(id, 10 + outputTokens);
  }

  /** Null for a refusal. */
  async #post(path: string, body: object): Promise<Reservation | null> {
    const response = await fetch(`${this.#stack.url}/t/${TENANT}/reservations${path}`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${await this.#stack.key()}`,
        "content-type": "application/json",
      },
      body: JSON.stringify(body),
    });
    const answer = await response.json<Reservation>();
    return response.ok ? answer : null;
  }
}

describe("a kill -9 at any moment of a crowd", () => {
  const ttlMs = 1_000;
  let stack: Stack;
  beforeAll(async () => {
    stack = await startStack({
      policy: {
        leaseTtlMs: ttlMs,
        reconcileAgeMaxMs: 3_600_000,
        limits: [
          { name: "tokens", kind: "bucket", unit: "tokens", capacity: 1_000_000_000, refillPerMinute: 0 },
          { name: "slots", kind: "gauge", unit: "concurrency", max: 200 },
        ],
      },
      simulator: { SIM_FIRST_TOKEN_MS: "5", SIM_TOKEN_MS: "2" },
    });
  });
  afterAll(() => stack?.stop());

  /** Nothing that was told is missing, and nothing is booked otherwise than it was told. */
  function expectAllThere(
    { leases }: LedgerState,
    { reserved, dispatched, released, settled }: Acknowledged,
  ) {
    const stateOf = (id: string) => leases.get(id)?.state ?? "UNKNOWN";
    expect([...reserved].filter((id) => !leases.has(id))).toEqual([]);
    expect([...dispatched].filter((id) => stateOf(id) === "RESERVED")).toEqual([]);
    expect([...released].filter((id) => stateOf(id) !== "RELEASED")).toEqual([]);
    for (const [id, tokens] of settled) {
      const settlement = leases.get(id)?.settlement ?? null;
      expect(settlement === null ? null : tokensOf(settlement.usage), id).toBe(tokens);
    }
  }

  it(`I8 loses nothing that was told, ${KILLS} times over, and frees within a lease's time what was not`, async () => {
    const random = randomFrom(SEED);
    const load = new Load(stack, random);
    for (let kill = 0; kill < KILLS; kill += 1) {
      const running = load.run();
      await new Promise((resolve) => setTimeout(resolve, 50 + random() * 450));
      await stack.kill9();
      await running;
      const record = await foldedRecord(stack.stateDir);
      expectAllThere(record, load.told);

      await stack.restart();
      const found = await stack.balance();
      expect(found).toEqual(balanceAt(record, found.atMs));
      const freed = await soon(async () => {
        const balance = await stack.balance();
        expect(balance.inFlight).toEqual({ requests: 0, tokens: 0 });
        return balance;
      }, ttlMs + 500);
      expect(limitOf(freed, "slots")).toMatchObject({ held: 0, level: 200 });
      const after = await foldedRecord(stack.stateDir);
      expectAllThere(after, load.told);
      const open = [...after.leases.values()].filter(
        ({ state }) => !isClosed(state) && state !== "RECONCILING",
      );
      expect(open).toEqual([]);
      // What is frozen is listed with all it holds, and the rest is spent to the token.
      const frozen = [...after.leases.values()].filter(({ state }) => state === "RECONCILING");
      expect(freed.reconciling.count).toBe(frozen.length);
      const { held, settledTotal, level } = limitOf(freed);
      expect(held).toBe(freed.reconciling.tokens);
      expect(level).toBe(1_000_000_000 - held - settledTotal);
    }
    const { reserved, settled, released } = load.told;
    expect(Math.min(settled.size, released.size)).toBeGreaterThan(KILLS);
    expect(reserved.size).toBeGreaterThan(settled.size);
  }, 90_000);
});
