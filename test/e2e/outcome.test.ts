import { setTimeout as pause } from "node:timers/promises";
import { afterAll, beforeAll, expect, it } from "vitest";
import { readRecord } from "../support/record.ts";
import { soon } from "../support/soon.ts";
import { limitOf, type Stack, startStack, TENANT, told } from "../support/stack.ts";

const LEASE_TTL_MS = 2_000;

let stack: Stack;

beforeAll(async () => {
  stack = await startStack({ policy: { leaseTtlMs: LEASE_TTL_MS, reconcileAgeMaxMs: 600_000 } });
});
afterAll(() => stack?.stop());

it("a call whose gateway died is settled at what the provider says of it, if the provider keeps its answers", async () => {
  const body = { model: told("tokens=40&slow=100"), stream: true, store: true };
  const response = await stack.request(body);
  const kept = stack.request({ ...body, store: false });
  const providersId = response.headers.get("x-request-id");
  // Its name has come with the first event, and rides with the next write.
  await pause(500);
  await (await stack.request({ model: told("tokens=1") })).text();
  await stack.kill9();
  await Promise.allSettled([response.text(), kept.then((each) => each.text())]);
  const billed = await soon(async () => {
    const { usage } = await stack.simulatorRequest(providersId);
    const tokens = (usage?.promptTokens ?? 0) + (usage?.completionTokens ?? 0);
    expect(tokens).toBeGreaterThan(0);
    return tokens;
  });

  await stack.restart();
  const before = limitOf(await stack.balance()).settledTotal;
  await soon(async () => {
    const balance = await stack.balance();
    // The one that is not kept stays frozen: nobody can tell, and its age limit is far.
    expect(balance.reconciling.count).toBe(1);
    expect(limitOf(balance).settledTotal - before).toBe(billed);
  }, 15_000);
  const { events } = await readRecord(stack.stateDir, TENANT);
  expect(events.filter(({ type }) => type === "settled").at(-1)).toMatchObject({ basis: "exact" });
});
