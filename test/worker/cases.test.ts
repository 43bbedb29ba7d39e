/** Faults that people met with other gateways, which have no better home. */

import { createExecutionContext, waitOnExecutionContext } from "cloudflare:test";
import { env, exports } from "cloudflare:workers";
import { afterEach, describe, expect, it, vi } from "vitest";
import { handle } from "../../src/gateway/handle.ts";
import { mintVirtualKey } from "../../src/gateway/virtual-key.ts";
import type { Balance } from "../../src/ledger/view.ts";
import { parsePolicy } from "../../src/policy/schema.ts";
import { parseSettings } from "../../src/settings.ts";
import { CHAT_PATH, endpointOf } from "../support/endpoints.ts";
import { bucket, policyOf, reserveOf } from "../support/ledger.ts";

const keySecret = String(env.WEIR_KEY_SECRET);

const keyOf = (tenant: string) =>
  mintVirtualKey({
    secret: keySecret,
    keyId: "k",
    user: null,
    tenant,
    class: "interactive",
    issuedAtMs: Date.now(),
    expiresAtMs: null,
  });

const document = (limits: readonly object[]) => ({
  version: 1,
  providers: { p: { dialect: "openai", baseUrl: "https://provider.test/v1", apiKeySecret: "PROVIDER_P" } },
  models: { m: { provider: "p", contextTokens: 100_000, maxOutputTokens: 500 } },
  routes: { default: {} },
  limits,
  tenants: { "*": {} },
});

async function call(tenant: string, body: object, limits: readonly object[]): Promise<Response> {
  const parsed = await parseSettings({
    ...env,
    WEIR_POLICY: document(limits),
    WEIR_KEY_SECRET: keySecret,
    PROVIDER_P: "sk-provider",
  } as unknown as Cloudflare.Env);
  if (!parsed.ok) throw new Error(parsed.problems.join());
  const ctx = createExecutionContext();
  const request = new Request(`https://weir.test/t/${tenant}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${await keyOf(tenant)}` },
    body: JSON.stringify(body),
  });
  const context = {
    env,
    settings: parsed.settings,
    waitUntil: (work: Promise<unknown>) => ctx.waitUntil(work),
  };
  const response = await handle(request, tenant, endpointOf(CHAT_PATH), context);
  const answer = new Response(await response.text(), response);
  await waitOnExecutionContext(ctx);
  return answer;
}

const answered = (prompt: number, completion: number) =>
  Response.json({
    choices: [{ message: { content: "x" }, finish_reason: "stop" }],
    usage: { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion },
  });

const tokens = { name: "t", kind: "bucket", unit: "tokens", capacity: 5_000, refillPerMinute: 0 };

afterEach(() => {
  vi.restoreAllMocks();
});

const balanceOf = async (tenant: string): Promise<Balance> =>
  env.TENANT_LEDGER.getByName(`v1:${tenant}`).balance();

describe("SET-09 a request that hardly says anything", () => {
  it("holds a bounded amount, blocks nobody else, and is settled once", async () => {
    vi.spyOn(globalThis, "fetch").mockImplementation(async () => answered(3, 4));
    const empty = await call("set-09", { model: "m", messages: [] }, [tokens]);
    const other = await call("set-09", { model: "m", messages: [{ role: "user", content: "hi" }] }, [tokens]);
    expect(other.status).toBe(200);
    expect(Number(empty.headers.get("x-weir-held-tokens") ?? 0)).toBeLessThan(600);
    const { limits, inFlight } = await balanceOf("set-09");
    expect(inFlight).toEqual({ requests: 0, tokens: 0 });
    expect(limits[0]).toMatchObject({ held: 0, settledTotal: empty.status === 200 ? 14 : 7 });
  });
});

describe("LIM-20 a limiter that is not there", () => {
  it("is no policy at all, and says so", () => {
    expect(parsePolicy(document([])).ok).toBe(false);
  });

  it("is spelled null, and the decision is told all the same", async () => {
    vi.spyOn(globalThis, "fetch").mockImplementation(async () => answered(3, 4));
    const limits = [{ ...tokens, capacity: null }];
    const { headers, status } = await call(
      "lim-20",
      { model: "m", messages: [{ role: "user", content: "hi" }] },
      limits,
    );
    expect(status).toBe(200);
    for (const name of ["x-weir-request-id", "x-weir-held-tokens", "x-weir-policy", "x-weir-rung"])
      expect(headers.get(name), name).not.toBeNull();
  });
});

describe("PLA-13 a provider's body that nobody reads", () => {
  it("is let go when the answer is a redirect, so that no connection stays taken", async () => {
    let letGo = 0;
    vi.spyOn(globalThis, "fetch").mockImplementation(
      async () =>
        new Response(new ReadableStream({ cancel: () => void (letGo += 1) }), {
          status: 307,
          headers: { location: "https://elsewhere.test/" },
        }),
    );
    for (let i = 0; i < 7; i += 1) {
      const { status } = await call("pla-13", { model: "m", messages: [{ role: "user", content: "hi" }] }, [
        tokens,
      ]);
      expect(status).toBe(502);
    }
    expect(letGo).toBe(7);
  });

  it("reaches the caller when it is an error's, to its last byte", async () => {
    vi.spyOn(globalThis, "fetch").mockImplementation(
      async () => new Response("overloaded ".repeat(500), { status: 503 }),
    );
    const answer = await call("pla-13b", { model: "m", messages: [{ role: "user", content: "hi" }] }, [
      tokens,
    ]);
    expect([answer.status, (await answer.text()).length]).toEqual([503, 5_500]);
  });
});

describe("PLA-11 fifty reserves at once", () => {
  it("are fifty decisions in a row: none waits for a lock, and none sees another's half", async () => {
    const ledger = env.TENANT_LEDGER.getByName("v1:pla-11");
    await ledger.run({ type: "set_policy", policy: policyOf([bucket(1_000, 0)]) });
    const replies = await Promise.all(
      Array.from({ length: 50 }, (_, i) => ledger.run(reserveOf(`r${i}`, 90, 10))),
    );
    expect(replies.filter(({ type }) => type === "reserved")).toHaveLength(10);
    expect((await ledger.balance()).limits[0]).toMatchObject({ level: 0, held: 1_000 });
  });
});

it("LIM-11 a path that would generate and is not metered is refused", async () => {
  for (const path of [
    "/v1/completions",
    "/v1/responses/compact",
    "/v1/images/generations",
    "/v1/messages/batches",
    "/v1beta/models/m:batchGenerateContent",
    "/v1beta/models/m/generateContent",
  ]) {
    const response = await exports.default.fetch(`https://weir.test/t/acme${path}`, {
      method: "POST",
      headers: { authorization: `Bearer ${await keyOf("acme")}` },
      body: "{}",
    });
    expect([path, response.status]).toEqual([path, 404]);
  }
});
