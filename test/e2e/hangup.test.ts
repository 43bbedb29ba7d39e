/** A caller who leaves is charged what was seen, frees the slot, and stops the provider. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Leaver } from "../support/leaver.ts";
import { soon } from "../support/soon.ts";
import { countedInput, limitOf, type Stack, startStack, told } from "../support/stack.ts";

let stack: Stack;

beforeAll(async () => {
  const single = { slots: { max: 1 } };
  stack = await startStack({
    policy: {
      overrides: {
        rst: single,
        fin: single,
        headers: single,
        body: single,
        unary: single,
        partial: single,
        evader: { ...single, tokens: { capacity: 8_000 } },
      },
    },
  });
});
afterAll(() => stack?.stop());

/** The slot is free, and nothing is left that anybody would have to find out about. */
async function expectOver(tenant: string): Promise<number> {
  const balance = await stack.balance(tenant);
  expect(balance).toMatchObject({
    inFlight: { requests: 0, tokens: 0 },
    reconciling: { count: 0, tokens: 0 },
  });
  expect(limitOf(balance, "slots").held).toBe(0);
  expect(limitOf(balance).held).toBe(0);
  return limitOf(balance).settledTotal;
}

async function expectNextAdmitted(tenant: string): Promise<void> {
  const next = await stack.request({ model: told("tokens=1") }, { tenant });
  expect([next.status, await next.text()]).toMatchObject([200, expect.stringContaining("chat.completion")]);
}

describe("SET-01 PLA-01 PLA-02 a caller who leaves in the middle of a stream", () => {
  for (const [how, tenant] of [
    ["reset", "rst"],
    ["close", "fin"],
  ] as const) {
    it(`is settled at prompt and seen output within a second (${tenant.toUpperCase()})`, async () => {
      const leaver = await Leaver.call(stack, { model: told("tokens=90&slow=40"), stream: true }, tenant);
      await leaver.contentChunks(5);
      leaver[how]();
      const settled = await soon(() => expectOver(tenant));
      const headers = await leaver.headers();
      const record = await soon(async () => {
        const found = await stack.simulatorRequest(headers.get("x-request-id"));
        expect(found.outcome).toBe("client_closed");
        return found;
      });
      const seen = settled - countedInput(headers);
      expect(seen).toBeGreaterThanOrEqual(5);
      expect(seen).toBeLessThanOrEqual(record.sentTokens);
      // The provider stopped as well: few tokens were on their way when the line was cut.
      expect(record.sentTokens).toBeLessThanOrEqual(15);
      expect(record.sentTokens - seen).toBeLessThanOrEqual(3);
      await expectNextAdmitted(tenant);
    });
  }
});

describe("a caller who leaves before the first byte", () => {
  const cases = [
    {
      tenant: "headers",
      when: "the provider has not answered",
      body: { model: told("stallHeaders=1"), stream: true },
    },
    {
      tenant: "body",
      when: "the provider has sent headers only",
      body: { model: told("firstMs=30000"), stream: true },
    },
    { tenant: "unary", when: "the answer is no stream", body: { model: told("firstMs=30000") } },
  ];
  for (const { tenant, when, body } of cases) {
    it(`frees the slot within a second when ${when}`, async () => {
      const before = (await stack.simulatorRequests()).length;
      const leaver = await Leaver.call(stack, body, tenant);
      await soon(async () => expect(await stack.simulatorRequests()).toHaveLength(before + 1));
      expect((await stack.balance(tenant)).inFlight.requests).toBe(1);
      leaver.reset();
      const settled = await soon(() => expectOver(tenant));
      // The provider had the prompt.
      const probe = await stack.request({ model: told("tokens=1") }, { tenant: "probe" });
      expect(settled).toBe(countedInput(probe.headers));
      await expectNextAdmitted(tenant);
    });
  }
});

// It was generated whole before its first byte: it is read to its end, which tells its exact price.
it("SET-07 a caller who leaves inside a unary answer is charged what the provider reports of all of it", async () => {
  // Byte by byte, so that the rest is still to come when they leave.
  const leaver = await Leaver.call(
    stack,
    { model: told("tokens=400&cut=1"), max_tokens: 400, n: 20 },
    "partial",
  );
  await leaver.bytes(2_000);
  leaver.reset();
  const settled = await soon(() => expectOver("partial"), 5_000);
  const [record] = (await stack.simulatorRequests()).filter(
    ({ plannedOutputTokens }) => plannedOutputTokens === 8_000,
  );
  expect(record?.usage).toEqual({ promptTokens: 13, completionTokens: 8_000 });
  expect(settled).toBe(8_013);
});

it("SET-06 leaving early again and again evades nothing: the bucket is used up", async () => {
  const content = "The river is wide and the boat is small. ".repeat(100);
  const body = { model: told("tokens=90&slow=20"), stream: true, messages: [{ role: "user", content }] };
  let rounds = 0;
  let inputTokens = 0;
  for (; rounds < 20; rounds += 1) {
    const leaver = await Leaver.call(stack, body, "evader");
    if ((await leaver.status()) !== 200) {
      expect(await leaver.status()).toBe(429);
      leaver.close();
      break;
    }
    await leaver.contentChunks(1);
    leaver.reset();
    inputTokens = countedInput(await leaver.headers());
    await soon(() => expectOver("evader"));
  }
  expect(inputTokens).toBeGreaterThan(800);
  expect(rounds).toBe(Math.floor((8_000 - 100) / inputTokens));
  expect(limitOf(await stack.balance("evader")).settledTotal).toBeGreaterThan(rounds * inputTokens);
});
