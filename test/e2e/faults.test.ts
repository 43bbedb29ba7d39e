/** A provider on a bad day: its own words reach the caller, and the ledger ends with what they prove. */

import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Balance } from "../../src/ledger/view.ts";
import { soon } from "../support/soon.ts";
import {
  chatBody,
  countedInput,
  limitOf,
  PROVIDER_SECRET,
  type Stack,
  startStack,
  told,
} from "../support/stack.ts";

let stack: Stack;
let quoter: Server;

/** A provider that repeats the credential it was given. */
async function startQuoter(): Promise<Server> {
  const server = createServer((request, response) => {
    request.resume();
    response.writeHead(401, { "content-type": "application/json" });
    response.end(
      JSON.stringify({ error: { message: `Incorrect API key provided: ${request.headers.authorization}.` } }),
    );
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return server;
}

/** A port that nobody listens on. */
async function closedPort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

beforeAll(async () => {
  quoter = await startQuoter();
  const model = { contextTokens: 128_000, maxOutputTokens: 16_384 };
  stack = await startStack({
    policy: {
      provider: { headersTimeoutMs: 500, idleTimeoutMs: 600 },
      providers: {
        down: { baseUrl: `http://127.0.0.1:${await closedPort()}/v1` },
        quoter: { baseUrl: `http://127.0.0.1:${(quoter.address() as AddressInfo).port}/v1` },
      },
      models: { down: { ...model, provider: "down" }, quoting: { ...model, provider: "quoter" } },
      overrides: { narrow: { slots: { max: 2 } } },
      // A silent body is looked at with each renewal of its lease.
      leaseTtlMs: 1_500,
    },
  });
});
afterAll(async () => {
  await stack?.stop();
  quoter.close();
});

/** The call is over, its slot and hold are back; how many tokens and requests it was charged. */
async function chargedTo(tenant: string): Promise<{ tokens: number; requests: number }> {
  return soon(async () => {
    const balance: Balance = await stack.balance(tenant);
    expect(balance).toMatchObject({
      inFlight: { requests: 0, tokens: 0 },
      reconciling: { count: 0, tokens: 0 },
    });
    for (const { held } of balance.limits) expect(held).toBe(0);
    const tokens = limitOf(balance);
    const requests = limitOf(balance, "requests");
    expect((tokens.capacity ?? 0) - (tokens.level ?? 0)).toBeCloseTo(tokens.settledTotal, 0);
    expect((requests.capacity ?? 0) - (requests.level ?? 0)).toBeCloseTo(requests.settledTotal, 0);
    return { tokens: tokens.settledTotal, requests: requests.settledTotal };
  });
}

/** What the provider says to the same request when nobody stands between. */
async function direct(model: string, stream: boolean): Promise<{ status: number; bytes: Buffer }> {
  const response = await fetch(`${stack.providerUrl}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${PROVIDER_SECRET}`, "content-type": "application/json" },
    body: JSON.stringify(chatBody({ model, stream })),
  });
  return { status: response.status, bytes: Buffer.from(await response.arrayBuffer()) };
}

describe("SET-13 SET-15 a provider's refusal", () => {
  for (const directives of [
    "status=400",
    "status=429&retryAfter=2",
    "status=500",
    "status=503",
    "status=529",
    "fail500text=1",
  ]) {
    for (const stream of [true, false]) {
      it(`passes ${directives} unchanged, ${stream ? "streaming" : "unary"}, for a request unit and no tokens`, async () => {
        const tenant = `refused-${directives.replaceAll(/\W/g, "-").toLowerCase()}-${stream ? "stream" : "unary"}`;
        const response = await stack.request({ model: told(directives), stream }, { tenant });
        const said = await direct(told(directives), stream);
        expect(response.status).toBe(said.status);
        expect(Buffer.from(await response.arrayBuffer()).equals(said.bytes)).toBe(true);
        expect(said.bytes.length).toBeGreaterThan(50);
        expect(response.headers.get("x-weir-limited-by")).toBe("provider");
        expect(response.headers.get("x-weir-held-tokens")).toMatch(/^\d+$/);
        expect(response.headers.get("retry-after")).toBe(directives.includes("retryAfter") ? "2" : null);
        expect(await chargedTo(tenant)).toEqual({ tokens: 0, requests: 1 });
      });
    }
  }
});

describe("a 200 that is no completion", () => {
  for (const stream of [true, false]) {
    it(`SET-16 passes a web page and charges the prompt, ${stream ? "streaming" : "unary"}`, async () => {
      const tenant = `html-${stream ? "stream" : "unary"}`;
      const response = await stack.request({ model: told("html=1"), stream }, { tenant });
      expect([response.status, response.headers.get("content-type")]).toEqual([
        200,
        "text/html; charset=utf-8",
      ]);
      expect(
        Buffer.from(await response.arrayBuffer()).equals((await direct(told("html=1"), stream)).bytes),
      ).toBe(true);
      expect(await chargedTo(tenant)).toEqual({ tokens: countedInput(response.headers), requests: 1 });
    });
  }

  it("STR-20 takes an error event before any word for a refusal", async () => {
    const response = await stack.request(
      { model: told("tokens=9&errorAfter=0"), stream: true },
      { tenant: "error-0" },
    );
    const received = Buffer.from(await response.arrayBuffer());
    expect(received.equals(await stack.simulatorBytes(response.headers.get("x-request-id")))).toBe(true);
    expect(received.toString()).toContain('"server_error"');
    expect(await chargedTo("error-0")).toEqual({ tokens: 0, requests: 1 });
  });

  it("STR-20 charges what came before an error event", async () => {
    const model = told("tokens=9&errorAfter=3");
    const response = await stack.request({ model, stream: true }, { tenant: "error-3" });
    const received = Buffer.from(await response.arrayBuffer());
    expect(received.equals(await stack.simulatorBytes(response.headers.get("x-request-id")))).toBe(true);
    expect(await chargedTo("error-3")).toEqual({ tokens: countedInput(response.headers) + 3, requests: 1 });
  });

  it("STR-20 prefers the input that the provider reported before its error", async () => {
    const model = told("tokens=9&errorAfter=3&continuousUsage=1");
    const response = await stack.request({ model, stream: true }, { tenant: "error-reported" });
    await response.text();
    const { promptTokens } = await stack.simulatorRequest(response.headers.get("x-request-id"));
    expect(await chargedTo("error-reported")).toEqual({ tokens: promptTokens + 3, requests: 1 });
  });

  it("charges what came before the connection broke, and breaks the caller's", async () => {
    const response = await stack.request(
      { model: told("tokens=9&drop=3"), stream: true },
      { tenant: "dropped" },
    );
    await expect(response.text()).rejects.toThrow();
    expect(await chargedTo("dropped")).toEqual({ tokens: countedInput(response.headers) + 3, requests: 1 });
  });

  it("charges the prompt of a unary answer that broke off", async () => {
    const response = await stack.request({ model: told("tokens=9&drop=1") }, { tenant: "dropped-unary" });
    await expect(response.text()).rejects.toThrow();
    expect((await chargedTo("dropped-unary")).tokens).toBeGreaterThanOrEqual(countedInput(response.headers));
  });

  for (const stream of [true, false]) {
    it(`STR-33 counts for itself when no usage comes, ${stream ? "streaming" : "unary"}`, async () => {
      const tenant = `nousage-${stream ? "stream" : "unary"}`;
      const response = await stack.request({ model: told("tokens=25&nousage=1"), stream }, { tenant });
      await response.text();
      expect(await chargedTo(tenant)).toEqual({ tokens: countedInput(response.headers) + 25, requests: 1 });
    });
  }
});

describe("a provider that cannot be had", () => {
  it("is a 502 when its port is closed", async () => {
    const response = await stack.request({ model: "down" }, { tenant: "down-answer" });
    expect(response.status).toBe(502);
    expect(response.headers.get("x-weir-limited-by")).toBe("provider");
    expect(await response.json()).toMatchObject({
      error: { type: "server_error" },
      weir: { code: "provider_unreachable", limitedBy: "provider" },
    });
    await soon(async () => expect(limitOf(await stack.balance("down-answer"), "slots").held).toBe(0));
  });

  // The runtime says the same words of a refused and of a lost connection: the gateway has to look again.
  it("costs nothing when its port is closed", async () => {
    await (await stack.request({ model: "down" }, { tenant: "down" })).text();
    expect(await chargedTo("down")).toEqual({ tokens: 0, requests: 0 });
  });

  it("is a 502 when it redirects, and the redirect is not followed", async () => {
    const before = (await stack.simulatorRequests()).length;
    const elsewhere = encodeURIComponent(`${stack.providerUrl}/v1/chat/completions`);
    const response = await stack.request({ model: told(`redirect=${elsewhere}`) }, { tenant: "redirect" });
    expect(response.status).toBe(502);
    expect(response.headers.get("location")).toBeNull();
    expect(await response.json()).toMatchObject({
      weir: { code: "provider_redirect", limitedBy: "provider" },
    });
    expect(await stack.simulatorRequests()).toHaveLength(before + 1);
    expect(await chargedTo("redirect")).toEqual({ tokens: 0, requests: 1 });
  });

  it("SET-02 is a 504 when its headers do not come, and the slots are free again", async () => {
    const hanging = () =>
      stack.request({ model: told("stallHeaders=1"), stream: true }, { tenant: "narrow" });
    const responses = await Promise.all([hanging(), hanging()]);
    for (const response of responses) {
      expect(response.status).toBe(504);
      expect(await response.json()).toMatchObject({
        weir: { code: "provider_timeout", limitedBy: "provider" },
      });
    }
    // It had the prompts.
    const prompts = responses.reduce((sum, { headers }) => sum + countedInput(headers), 0);
    expect(await chargedTo("narrow")).toEqual({ tokens: prompts, requests: 2 });
    const next = await stack.request({ model: told("tokens=1") }, { tenant: "narrow" });
    expect(next.status).toBe(200);
    await next.text();
  });

  it("is broken off when it falls silent in the middle of a stream", async () => {
    const response = await stack.request(
      { model: told("tokens=9&stall=4"), stream: true },
      { tenant: "silent" },
    );
    const startedMs = performance.now();
    await expect(response.text()).rejects.toThrow();
    expect(performance.now() - startedMs).toBeGreaterThan(500);
    expect(performance.now() - startedMs).toBeLessThan(2_000);
    expect(await chargedTo("silent")).toEqual({ tokens: countedInput(response.headers) + 4, requests: 1 });
  });
});

describe("SEC-07 CMP-03 what the provider hears of the caller", () => {
  it("is one credential, which is not the caller's, and an allow-list of headers", async () => {
    const key = await stack.key();
    const response = await stack.request(
      { model: told("tokens=1") },
      {
        headers: {
          "x-api-key": key,
          "api-key": key,
          "x-goog-api-key": key,
          cookie: "session=1",
          "cf-connecting-ip": "203.0.113.9",
          "cf-ray": "1",
          "cf-visitor": "{}",
          "cf-worker": "w",
          "cdn-loop": "cloudflare",
          "x-forwarded-for": "203.0.113.9",
          "x-real-ip": "203.0.113.9",
          "x-weir-class": "interactive",
          "x-unheard-of": "1",
          "openai-organization": "org-1",
          "openai-project": "proj-1",
          "openai-beta": "assistants=v2",
          "x-stainless-lang": "js",
          "user-agent": "a-caller/1",
        },
      },
    );
    expect(response.status).toBe(200);
    const { headers } = await stack.simulatorRequest(response.headers.get("x-request-id"));
    expect(headers["authorization"]).toBe(`***${PROVIDER_SECRET.slice(-4)}`);
    expect(headers["x-client-request-id"]).toBe(response.headers.get("x-weir-request-id"));
    expect(headers).toMatchObject({
      "openai-beta": "assistants=v2",
      "x-stainless-lang": "js",
      "user-agent": "a-caller/1",
    });
    expect(JSON.stringify(headers)).not.toContain(key.slice(-8));
    const framing = ["host", "content-length", "transfer-encoding"];
    const allowed = [
      "accept",
      "accept-encoding",
      "accept-language",
      "authorization",
      "content-type",
      "user-agent",
    ];
    const ours = ["openai-beta", "x-stainless-lang", "x-client-request-id"];
    expect(Object.keys(headers).filter((name) => ![...framing, ...allowed, ...ours].includes(name))).toEqual(
      [],
    );
  });

  it("is never told to the caller, even by a provider that quotes it", async () => {
    const response = await stack.request({ model: "quoting" });
    expect(response.status).toBe(401);
    const text = await response.text();
    expect(text).toContain("Incorrect API key provided");
    expect(text).not.toContain(PROVIDER_SECRET);
  });
});
