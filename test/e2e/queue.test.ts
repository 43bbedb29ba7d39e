import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Leaver } from "../support/leaver.ts";
import { soon } from "../support/soon.ts";
import { limitOf, type Stack, startStack, told } from "../support/stack.ts";

const DEADLINE_MS = 3_000;

/** The pinned runtime, and the newest that there is: they differ in what they notice of a caller. */
const { resolve } = createRequire(import.meta.url);
const NEWEST = join(dirname(resolve("workerd-newest/package.json")), "bin", "workerd");

describe.each([
  ["pinned", undefined],
  ["newest", NEWEST],
])("a queue on the %s runtime", (_name, workerd) => {
  let stack: Stack;
  beforeAll(async () => {
    stack = await startStack({
      policy: {
        route: { onCapacity: "queue", queueDeadlineMs: DEADLINE_MS },
        limits: [
          { name: "tokens", kind: "bucket", unit: "tokens", capacity: 100_000, refillPerMinute: 0 },
          { name: "slots", kind: "gauge", unit: "concurrency", max: 1 },
        ],
      },
      ...(workerd === undefined ? {} : { workerd }),
    });
  });
  afterAll(() => stack?.stop());

  const queueOf = async (tenant: string) => (await stack.balance(tenant)).queue.length;
  const inside = (tenant: string, tokens: number) =>
    stack.request({ model: told(`tokens=${tokens}&slow=50`), stream: true }, { tenant });

  it("lets a waiter in when a slot is given up, and says how long it waited", async () => {
    const tenant = "waits";
    const first = await inside(tenant, 10);
    const second = stack.request({ model: told("tokens=1") }, { tenant });
    await soon(async () => expect(await queueOf(tenant)).toBe(1));
    await first.text();
    const answer = await second;
    expect(answer.status).toBe(200);
    expect(Number(answer.headers.get("x-weir-queue-ms"))).toBeGreaterThan(50);
    await answer.text();
  });

  it("LIM-13 sends a waiter away at its deadline, in the caller's dialect", async () => {
    const tenant = "late";
    const first = await inside(tenant, 60);
    const startedMs = performance.now();
    const answer = await stack.request(
      { model: told("tokens=1") },
      { tenant, headers: { "x-weir-deadline-ms": "400" } },
    );
    expect(performance.now() - startedMs).toBeGreaterThan(350);
    expect(answer.status).toBe(503);
    expect(await answer.json()).toMatchObject({ weir: { code: "deadline_exceeded", limit: "slots" } });
    expect(Number(answer.headers.get("retry-after"))).toBeGreaterThanOrEqual(1);
    await first.body?.cancel();
  });

  it("LIM-14 a caller who goes while it waits is released whole, and its place goes to the next", async () => {
    const tenant = "gone";
    const first = await inside(tenant, 30);
    const leaver = await Leaver.call(stack, { model: told("tokens=500&slow=50"), stream: true }, tenant);
    await soon(async () => expect(await queueOf(tenant)).toBe(1));
    const next = stack.request({ model: told("tokens=1") }, { tenant });
    await soon(async () => expect(await queueOf(tenant)).toBe(2));
    leaver.reset();
    await soon(async () => expect(await queueOf(tenant)).toBe(1));
    await first.text();
    expect((await next).status).toBe(200);
    await (await next).text();
    await soon(async () => {
      const balance = await stack.balance(tenant);
      expect(balance).toMatchObject({
        inFlight: { requests: 0, tokens: 0 },
        queue: { length: 0, tokens: 0 },
        reconciling: { count: 0 },
      });
      expect(limitOf(balance, "slots")).toMatchObject({ held: 0, level: 1 });
      expect(limitOf(balance)).toMatchObject({ held: 0 });
    });
    // The provider never heard of it.
    const heard = (await stack.simulatorRequests()).filter(({ body }) => body.includes("tokens=500"));
    expect(heard).toEqual([]);
  });

  it("a caller who hangs up without a word is released whole as well, once it is let in or too late", async () => {
    const tenant = "silent";
    const first = await inside(tenant, 20);
    const leaver = await Leaver.call(stack, { model: told("tokens=3"), stream: true }, tenant);
    await soon(async () => expect(await queueOf(tenant)).toBe(1));
    leaver.close();
    await first.text();
    await pause(200);
    const next = await stack.request({ model: told("tokens=1") }, { tenant });
    expect(next.status).toBe(200);
    await next.text();
    await soon(async () => {
      const balance = await stack.balance(tenant);
      expect(balance).toMatchObject({
        inFlight: { requests: 0 },
        queue: { length: 0 },
        reconciling: { count: 0 },
      });
      for (const { held } of balance.limits) expect(held).toBe(0);
    }, DEADLINE_MS + 2_000);
  });
});
