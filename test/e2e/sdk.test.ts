/** The official SDK, told nothing but another base URL and key. */
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { soon } from "../support/soon.ts";
import { limitOf, MODEL, type Stack, startStack, TENANT, told } from "../support/stack.ts";

let stack: Stack;

beforeAll(async () => {
  stack = await startStack({ policy: { overrides: { poor: { tokens: { capacity: 150 } } } } });
});
afterAll(() => stack?.stop());

const messages = [{ role: "user" as const, content: "How wide is the river?" }];

async function sdk(
  tenant: string = TENANT,
  more: { apiKey?: string; fetch?: typeof fetch; maxRetries?: number } = {},
) {
  return new OpenAI({
    baseURL: stack.baseUrl(tenant),
    apiKey: await stack.key(tenant),
    maxRetries: 0,
    ...more,
  });
}

/** What the SDK raised. */
async function raised(call: Promise<unknown>): Promise<unknown> {
  return call.then(
    () => expect.fail("the call was admitted"),
    (error: unknown) => error,
  );
}

async function settledTotal(): Promise<number> {
  return limitOf(await stack.balance()).settledTotal;
}

/** The ledger has moved by what the provider billed for its newest request, and holds nothing. */
async function expectBilled(settledBefore: number): Promise<void> {
  const bill = (await stack.simulatorRequests()).at(-1)?.usage;
  const billed = (bill?.promptTokens ?? 0) + (bill?.completionTokens ?? 0);
  expect(billed).toBeGreaterThan(0);
  await soon(async () => {
    expect(limitOf(await stack.balance())).toMatchObject({ settledTotal: settledBefore + billed, held: 0 });
  });
}

describe("the OpenAI SDK", () => {
  for (const asks of [true, false]) {
    it(`streams what the provider sent, ${asks ? "with" : "without"} the usage chunk, billed exactly`, async () => {
      const before = await settledTotal();
      const stream = await (await sdk()).chat.completions.create({
        model: told("tokens=40"),
        messages,
        stream: true,
        ...(asks ? { stream_options: { include_usage: true } } : {}),
      });
      let text = "";
      const usages: OpenAI.CompletionUsage[] = [];
      for await (const chunk of stream) {
        text += chunk.choices[0]?.delta.content ?? "";
        if (chunk.usage) usages.push(chunk.usage);
      }
      const record = (await stack.simulatorRequests()).at(-1);
      const sent = (await stack.simulatorBytes(record?.id ?? null)).toString();
      expect(text).toBe(textOf(sent));
      expect(text.trim().split(" ")).toHaveLength(40);
      expect(usages.map((usage) => usage.completion_tokens)).toEqual(asks ? [40] : []);
      await expectBilled(before);
    });
  }

  it("answers without a stream", async () => {
    const before = await settledTotal();
    const { data, response } = await (await sdk()).chat.completions
      .create({ model: told("tokens=12"), messages, max_completion_tokens: 50 })
      .withResponse();
    const { choices, usage } = data;
    const sent = await stack.simulatorBytes(response.headers.get("x-request-id"));
    expect(JSON.parse(sent.toString())).toMatchObject({
      choices: [{ message: { content: choices[0]?.message.content } }],
    });
    expect(usage?.completion_tokens).toBe(12);
    await expectBilled(before);
  });

  it("passes tools on, in a stream and without", async () => {
    const parameters = { type: "object", properties: { river: { type: "string" } }, required: ["river"] };
    const tools = [
      { type: "function" as const, function: { name: "width_of", description: "Measures.", parameters } },
    ];
    for (const stream of [true, false]) {
      const before = await settledTotal();
      const answer = await (await sdk()).chat.completions.create({
        model: told("tokens=7"),
        messages,
        tools,
        stream,
      });
      if ("choices" in answer) expect(answer.choices[0]?.finish_reason).toBe("stop");
      else for await (const chunk of answer) expect(chunk.object).toBe("chat.completion.chunk");
      const record = (await stack.simulatorRequests()).at(-1);
      expect(JSON.parse(record?.body ?? "")).toMatchObject({ tools });
      await expectBilled(before);
    }
  });
});

describe("refusals as the SDK raises them", () => {
  it("RateLimitError for an exhausted bucket, with our own code in the body", async () => {
    const bodies: string[] = [];
    const client = await sdk("poor", {
      fetch: async (...call) => {
        const response = await fetch(...call);
        bodies.push(await response.clone().text());
        return response;
      },
    });
    const body = { model: told("tokens=90"), messages, max_completion_tokens: 100 };
    await client.chat.completions.create(body);
    await soon(async () => expect((await stack.balance("poor")).inFlight.requests).toBe(0));
    const error = await raised(client.chat.completions.create(body));
    expect(error).toBeInstanceOf(OpenAI.RateLimitError);
    expect(error).toMatchObject({ status: 429, code: "rate_limit_exceeded", type: "tokens" });
    expect(JSON.parse(bodies.at(-1) ?? "")).toMatchObject({
      weir: { code: "tokens_exhausted", limitedBy: "gateway", limit: "tokens", scope: { tenant: "poor" } },
    });
  });

  it("AuthenticationError, PermissionDeniedError and NotFoundError, none of which reaches the provider", async () => {
    const sent = (await stack.simulatorRequests()).length;
    const create = async (client: OpenAI, model: string) =>
      raised(client.chat.completions.create({ model, messages }));
    const forged = `${await stack.key()}x`;
    expect(await create(await sdk(TENANT, { apiKey: forged }), MODEL)).toBeInstanceOf(
      OpenAI.AuthenticationError,
    );
    const foreign = await create(await sdk(TENANT, { apiKey: await stack.key("other") }), MODEL);
    expect(foreign).toBeInstanceOf(OpenAI.PermissionDeniedError);
    expect(foreign).toMatchObject({ status: 403 });
    const unknown = await create(await sdk(), "no-such-model");
    expect(unknown).toBeInstanceOf(OpenAI.NotFoundError);
    expect(unknown).toMatchObject({ code: "model_not_found", param: "model" });
    expect(await stack.simulatorRequests()).toHaveLength(sent);
  });

  it("BadRequestError for what never fits, which the SDK does not try again", async () => {
    let calls = 0;
    const client = await sdk("poor", {
      maxRetries: 2,
      fetch: (...call) => {
        calls += 1;
        return fetch(...call);
      },
    });
    const error = await raised(
      client.chat.completions.create({ model: MODEL, messages, max_completion_tokens: 900 }),
    );
    expect(error).toBeInstanceOf(OpenAI.BadRequestError);
    expect(error).toMatchObject({ status: 400, code: "context_length_exceeded" });
    expect(calls).toBe(1);
  });
});

function textOf(sent: string): string {
  const events = [...sent.matchAll(/^data: (\{.*)$/gm)].map(
    ([, data = ""]) => JSON.parse(data) as OpenAI.ChatCompletionChunk,
  );
  return events.map(({ choices }) => choices[0]?.delta.content ?? "").join("");
}
