import { setTimeout as pause } from "node:timers/promises";
import { afterAll, beforeAll, it } from "vitest";
import { soon } from "../support/soon.ts";
import { limitOf, type Stack, startStack, told } from "../support/stack.ts";

const LEASE_TTL_MS = 1_500;
const SILENT_MS = 5_000;

let stack: Stack;

beforeAll(async () => {
  stack = await startStack({ policy: { leaseTtlMs: LEASE_TTL_MS } });
});
afterAll(() => stack?.stop());

for (const stream of [true, false]) {
  it.concurrent(`a lease outlives three of its times while its ${stream ? "stream" : "unary answer"} is silent`, async ({
    expect: see,
  }) => {
    const tenant = stream ? "stream" : "unary";
    const call = stack.request({ model: told(`tokens=10&firstMs=${SILENT_MS}`), stream }, { tenant });
    let over = false;
    const answered = call
      .then((response) => response.text())
      .finally(() => {
        over = true;
      });
    const startedMs = performance.now();
    await soon(async () => see((await stack.balance(tenant)).inFlight.requests).toBe(1));
    while (performance.now() - startedMs < SILENT_MS - 200) {
      const balance = await stack.balance(tenant);
      see(over).toBe(false);
      see(balance).toMatchObject({ inFlight: { requests: 1 }, reconciling: { count: 0 } });
      await pause(25);
    }
    await answered;
    const response = await call;
    const { usage } = await stack.simulatorRequest(response.headers.get("x-request-id"));
    const billed = (usage?.promptTokens ?? 0) + (usage?.completionTokens ?? 0);
    await soon(async () => {
      const balance = await stack.balance(tenant);
      see(limitOf(balance)).toMatchObject({ held: 0, settledTotal: billed });
      see(balance).toMatchObject({ inFlight: { requests: 0 }, reconciling: { count: 0 } });
    });
  });
}
