import { afterAll, beforeAll, expect, it } from "vitest";
import { soon } from "../support/soon.ts";
import { limitOf, type Stack, startStack, told } from "../support/stack.ts";

let stack: Stack;

beforeAll(async () => {
  stack = await startStack({
    policy: { overrides: { poor: { tokens: { capacity: 150, refillPerMinute: 600 } } } },
  });
});
afterAll(() => stack?.stop());

const DURATION = /^(\d+h)?(\d+m)?(\d+(\.\d+)?s|\d+ms)$/;

it("tells the decision before the first byte, and the balance shows the hold while the stream runs", async () => {
  const response = await stack.request({ model: told("tokens=20&slow=20&firstMs=200"), stream: true });
  const { headers } = response;
  const held = Number(headers.get("x-weir-held-tokens"));
  const during = await stack.balance();
  const record = await stack.simulatorRequest(headers.get("x-request-id"));
  expect(record).toMatchObject({ outcome: "open", sentTokens: 0 });

  expect(response.status).toBe(200);
  expect(headers.get("content-type")).toContain("text/event-stream");
  expect(headers.get("x-weir-request-id")).toMatch(/^req_[0-9a-f-]{36}$/);
  expect(headers.get("x-weir-policy")).toMatch(/^[0-9a-f]+$/);
  expect(headers.get("x-weir-rung")).toBe("FULL");
  expect(headers.get("x-weir-queue-ms")).toBe("0");
  expect(headers.get("x-weir-limited-by")).toBeNull();
  expect(held).toBeGreaterThan(100);
  expect(headers.get("x-ratelimit-limit-tokens")).toBe("1000000");
  expect(headers.get("x-ratelimit-remaining-tokens")).toBe(String(1_000_000 - held));
  expect(headers.get("x-ratelimit-reset-tokens")).toMatch(DURATION);
  expect(headers.get("x-ratelimit-limit-requests")).toBe("1000");
  expect(headers.get("x-ratelimit-remaining-requests")).toBe("999");
  expect(headers.get("x-ratelimit-reset-requests")).toMatch(DURATION);
  // The provider's own limits keep their figures, under a name that says whose they are.
  expect(headers.get("x-provider-ratelimit-limit-tokens")).toBe("2000000");
  expect(headers.get("x-provider-ratelimit-limit-requests")).toBe("10000");

  expect(limitOf(during)).toMatchObject({ held, settledTotal: 0 });
  expect(limitOf(during, "slots")).toMatchObject({ held: 1, level: 199 });
  expect(during.inFlight).toEqual({ requests: 1, tokens: held });

  await response.text();
  await soon(async () => {
    const after = await stack.balance();
    expect(limitOf(after)).toMatchObject({ held: 0, settledTotal: record.promptTokens + 20 });
    expect(limitOf(after, "slots")).toMatchObject({ held: 0, level: 200 });
    expect(after).toMatchObject({
      inFlight: { requests: 0, tokens: 0 },
      reconciling: { count: 0, tokens: 0 },
    });
  });
});

it("tells it on a unary answer, on a provider's refusal and on its own", async () => {
  const unary = await stack.request({ model: told("tokens=3") }, { tenant: "unary" });
  expect(unary.headers.get("x-weir-held-tokens")).toMatch(/^\d+$/);
  expect(unary.headers.get("x-ratelimit-remaining-requests")).toBe("999");

  const passed = await stack.request({ model: told("status=429&retryAfter=7") }, { tenant: "passed" });
  expect(passed.headers.get("x-weir-held-tokens")).toMatch(/^\d+$/);
  expect(passed.headers.get("x-weir-limited-by")).toBe("provider");
  expect(passed.headers.get("retry-after")).toBe("7");

  const body = { model: told("tokens=90&stall=90"), stream: true };
  const aborter = new AbortController();
  await stack.request(body, { tenant: "poor", signal: aborter.signal });
  const refused = await stack.request(body, { tenant: "poor" });
  aborter.abort();
  expect(refused.status).toBe(429);
  const waitMs = Number(refused.headers.get("retry-after-ms"));
  expect(waitMs).toBeGreaterThan(0);
  expect(refused.headers.get("retry-after")).toBe(String(Math.max(1, Math.ceil(waitMs / 1_000))));
  expect(refused.headers.get("x-weir-limited-by")).toBe("gateway");
  expect(refused.headers.get("x-weir-request-id")).toMatch(/^req_/);
  expect(refused.headers.get("x-weir-policy")).toBe(unary.headers.get("x-weir-policy"));
  expect(refused.headers.get("x-ratelimit-limit-tokens")).toBe("150");
  expect(Number(refused.headers.get("x-ratelimit-remaining-tokens"))).toBeLessThan(100);
  expect(refused.headers.get("x-ratelimit-reset-tokens")).toMatch(DURATION);
  expect(await refused.json()).toMatchObject({
    error: { type: "tokens", code: "rate_limit_exceeded" },
    weir: { code: "tokens_exhausted", limitedBy: "gateway", limit: "tokens", retryAfterMs: waitMs },
  });
});
