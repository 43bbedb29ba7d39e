import { afterAll, beforeAll, expect, it } from "vitest";
import type { LedgerState } from "../../src/ledger/state.ts";
import { sweep } from "../../src/ledger/turn.ts";
import { balanceOf } from "../../src/ledger/view.ts";
import { foldedRecord } from "../support/record.ts";
import { soon } from "../support/soon.ts";
import { limitOf, type Stack, startStack, TENANT, told } from "../support/stack.ts";

const STREAMS = 50;
const LEASE_TTL_MS = 2_000;
const RECONCILE_AGE_MAX_MS = 3_000;

let stack: Stack;

beforeAll(async () => {
  stack = await startStack({ policy: { leaseTtlMs: LEASE_TTL_MS, reconcileAgeMaxMs: RECONCILE_AGE_MAX_MS } });
});
afterAll(() => stack?.stop());

/** What the fold of the record says of that instant: the object sweeps before it answers. */
function balanceAt(state: LedgerState, atMs: number) {
  sweep(state, atMs);
  state.nowMs = atMs;
  return balanceOf(state, TENANT);
}

it("I8 loses no lease to a kill -9, frees their slots after their time and charges them at their age limit", async () => {
  const responses = await Promise.all(
    Array.from({ length: STREAMS }, () => stack.request({ model: told("tokens=90&slow=200"), stream: true })),
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
