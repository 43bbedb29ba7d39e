import { setTimeout as pause } from "node:timers/promises";
import { afterAll, beforeAll, expect, it } from "vitest";
import { soon } from "../support/soon.ts";
import { countedInput, limitOf, type Stack, startStack, told } from "../support/stack.ts";

/** Tokens that each request holds. */
const HOLD = 100;
const AFFORDED = 40;

let stack: Stack;

beforeAll(async () => {
  stack = await startStack({
    policy: {
      overrides: {
        crowd: { tokens: { capacity: AFFORDED * HOLD } },
        patient: { tokens: { capacity: 1_000, refillPerMinute: 60_000 } },
      },
    },
  });
});
afterAll(() => stack?.stop());

it(`admits exactly as many of a crowd as the bucket affords`, async () => {
  const probe = await stack.request({ model: told("tokens=1") }, { tenant: "probe" });
  // The answers begin after everybody has been judged, so that no refund lets one more in.
  const body = {
    model: told("tokens=5&firstMs=2000"),
    stream: true,
    max_tokens: HOLD - countedInput(probe.headers),
  };
  const sentBefore = (await stack.simulatorRequests()).length;
  const crowd = await Promise.all(
    Array.from({ length: 100 }, async () => {
      const response = await stack.request(body, { tenant: "crowd" });
      return { response, text: response.text() };
    }),
  );
  expect(limitOf(await stack.balance("crowd"))).toMatchObject({ held: AFFORDED * HOLD, settledTotal: 0 });
  const answers = await Promise.all(
    crowd.map(async ({ response, text }) => ({ response, text: await text })),
  );
  const admitted = answers.filter(({ response }) => response.status === 200);
  const refused = answers.filter(({ response }) => response.status === 429);
  expect([admitted.length, refused.length]).toEqual([AFFORDED, 100 - AFFORDED]);
  for (const { text } of admitted) {
    expect(text.match(/"content":" /g)).toHaveLength(5);
    expect(text.endsWith("data: [DONE]\n\n")).toBe(true);
  }
  for (const { text } of refused)
    expect(JSON.parse(text)).toMatchObject({ weir: { code: "tokens_exhausted", requested: HOLD } });
  const records = (await stack.simulatorRequests()).slice(sentBefore);
  expect(records).toHaveLength(AFFORDED);
  const billed = records.reduce((sum, { promptTokens }) => sum + promptTokens + 5, 0);
  await soon(async () => {
    expect(limitOf(await stack.balance("crowd"))).toMatchObject({ held: 0, settledTotal: billed });
  });
});

it("admits a refused request when its retry-after-ms has passed, and not before", async () => {
  // One token a millisecond, and a first call that keeps what it holds.
  const held = await stack.request(
    { model: told("tokens=5&stall=1"), stream: true, max_tokens: 900 },
    { tenant: "patient" },
  );
  expect(held.status).toBe(200);
  const body = { model: told("tokens=1"), max_tokens: 900 };
  const refused = await stack.request(body, { tenant: "patient" });
  const refusedAtMs = performance.now();
  expect(refused.status).toBe(429);
  const waitMs = Number(refused.headers.get("retry-after-ms"));
  expect(waitMs).toBeGreaterThan(600);

  await pause(waitMs - 300);
  const early = await stack.request(body, { tenant: "patient" });
  expect(early.status).toBe(429);
  expect(Number(early.headers.get("retry-after-ms"))).toBeLessThanOrEqual(300);

  await pause(refusedAtMs + waitMs - performance.now());
  const admitted = await stack.request(body, { tenant: "patient" });
  expect(admitted.status).toBe(200);
  await held.body?.cancel();
});
