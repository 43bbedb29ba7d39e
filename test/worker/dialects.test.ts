/** The dialects beside OpenAI's, through the worker's own routes down to the ledger. */
import { createExecutionContext, waitOnExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { afterEach, describe, expect, it, vi } from "vitest";
import { mintVirtualKey } from "../../src/gateway/virtual-key.ts";
import type { Balance } from "../../src/ledger/view.ts";
import worker from "../../src/worker.ts";

const keySecret = String(env.WEIR_KEY_SECRET);
const SECRET = "sk-provider";

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

const provider = (dialect: string, baseUrl: string) => ({ dialect, baseUrl, apiKeySecret: "PROVIDER_P" });
const model = (name: string) => ({ provider: name, contextTokens: 100_000, maxOutputTokens: 500 });

const ROUTE = { maxOutputTokens: 200, injectMaxOutputTokens: true };

const POLICY = {
  version: 1,
  providers: {
    anthropic: provider("anthropic", "https://anthropic.test"),
    openai: provider("openai", "https://openai.test/v1"),
    gemini: provider("gemini", "https://gemini.test"),
  },
  models: {
    claude: model("anthropic"),
    gpt: model("openai"),
    "gemini-2.5-flash": model("gemini"),
    "text-embedding-3-small": { ...model("openai"), encoding: "cl100k_base", maxOutputTokens: 0 },
  },
  routes: {
    default: ROUTE,
    unseen: { ...ROUTE, unseenInputTokens: 1_000 },
    asking: { ...ROUTE, inputCount: { by: "provider", timeoutMs: 50 } },
    strict: { ...ROUTE, inputCount: { by: "provider", timeoutMs: 50, onUnavailable: "refuse" } },
  },
  limits: [
    { name: "t", kind: "bucket", unit: "tokens", capacity: 5_000, refillPerMinute: 1 },
    { name: "r", kind: "bucket", unit: "requests", capacity: 20, refillPerMinute: 1 },
  ],
  tenants: { "*": {} },
};

const SETTINGS = {
  ...env,
  WEIR_POLICY: POLICY,
  WEIR_KEY_SECRET: keySecret,
  PROVIDER_P: SECRET,
} as unknown as Cloudflare.Env;

interface Called {
  readonly response: Response;
  readonly text: string;
}

async function call(
  path: string,
  body: object,
  headers: Readonly<Record<string, string>> | null = null,
): Promise<Called> {
  const tenant = path.split("/")[2] ?? "";
  const ctx = createExecutionContext();
  const request = new Request(`https://weir.test${path}`, {
    method: "POST",
    headers: { "x-api-key": await keyOf(tenant), ...headers },
    body: JSON.stringify(body),
  });
  const response = await worker.fetch(request, SETTINGS, ctx);
  const text = await response.text();
  await waitOnExecutionContext(ctx);
  return { response, text };
}

interface Sent {
  readonly url: string;
  readonly headers: Headers;
  readonly body: unknown;
}

/** What reaches the provider, which answers this. */
function answering(answer: (url: string, signal: AbortSignal) => Response | Promise<Response>): Sent[] {
  const sent: Sent[] = [];
  vi.spyOn(globalThis, "fetch").mockImplementation(async (input, init) => {
    const request = new Request(input, init);
    sent.push({ url: request.url, headers: request.headers, body: await request.json() });
    return answer(request.url, request.signal);
  });
  return sent;
}

async function limitsOf(tenant: string): Promise<Record<string, Balance["limits"][number]>> {
  const { limits } = await env.TENANT_LEDGER.getByName(`v1:${tenant}`).balance();
  return Object.fromEntries(limits.map((limit) => [limit.name, limit]));
}

const events = (...payloads: readonly object[]) =>
  new Response(payloads.map((payload) => `data: ${JSON.stringify(payload)}\n\n`).join(""), {
    headers: { "content-type": "text/event-stream" },
  });

afterEach(() => {
  vi.restoreAllMocks();
});

const MESSAGES = [{ role: "user", content: "How wide is the river?" }];

describe("Anthropic", () => {
  const message = { id: "msg_1", type: "message", role: "assistant", content: [] };
  const usage = {
    input_tokens: 27,
    cache_read_input_tokens: 900,
    cache_creation_input_tokens: 3,
    output_tokens: 1,
  };

  it("STR-06 STR-07 settles a stream at what its events said together", async () => {
    const sent = answering(() =>
      events(
        { type: "message_start", message: { ...message, usage } },
        { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "Wide." } },
        { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: { output_tokens: 20 } },
        { type: "message_stop" },
      ),
    );
    const { response } = await call("/t/stream/v1/messages", {
      model: "claude",
      messages: MESSAGES,
      stream: true,
    });
    expect(response.status).toBe(200);
    expect(sent[0]?.url).toBe("https://anthropic.test/v1/messages");
    expect(sent[0]?.body).toMatchObject({ max_tokens: 200 });
    expect(sent[0]?.headers.get("x-api-key")).toBe(SECRET);
    expect(Number(response.headers.get("x-weir-held-tokens"))).toBeGreaterThan(200);
    expect(response.headers.get("anthropic-ratelimit-tokens-limit")).toBe("5000");
    expect(Date.parse(response.headers.get("anthropic-ratelimit-tokens-reset") ?? "")).toBeGreaterThan(
      Date.now(),
    );
    expect((await limitsOf("stream"))["t"]).toMatchObject({ held: 0, settledTotal: 27 + 900 + 3 + 20 });
  });

  it("STR-25 settles a stream that broke off at what was seen, not at the start's placeholder", async () => {
    const words = "one two three four five six seven eight nine ten ";
    const head = [
      { type: "message_start", message: { ...message, usage: { input_tokens: 25, output_tokens: 1 } } },
      ...Array.from({ length: 30 }, () => ({
        type: "content_block_delta",
        delta: { type: "text_delta", text: words },
      })),
    ];
    const bytes = new TextEncoder().encode(
      head.map((payload) => `data: ${JSON.stringify(payload)}\n\n`).join(""),
    );
    let pulls = 0;
    answering(
      () =>
        new Response(
          new ReadableStream({
            pull(controller) {
              pulls += 1;
              if (pulls === 1) controller.enqueue(bytes);
              else controller.error(new Error("gone"));
            },
          }),
          { headers: { "content-type": "text/event-stream" } },
        ),
    );
    await call("/t/cut/v1/messages", { model: "claude", messages: MESSAGES, stream: true }).catch(() => {});
    await vi.waitFor(async () => expect((await limitsOf("cut"))["t"]?.held).toBe(0));
    // Ten words an event, and Claude makes more tokens of them than our vocabulary finds.
    expect((await limitsOf("cut"))["t"]?.settledTotal).toBeGreaterThan(25 + 30 * 10);
  });

  it("charges an error inside a 200 the reported input and what was seen", async () => {
    answering(() =>
      events(
        { type: "message_start", message: { ...message, usage: { input_tokens: 25, output_tokens: 1 } } },
        { type: "error", error: { type: "overloaded_error", message: "Overloaded" } },
      ),
    );
    await call("/t/failed/v1/messages", { model: "claude", messages: MESSAGES, stream: true });
    expect((await limitsOf("failed"))["t"]).toMatchObject({ held: 0, settledTotal: 26 });
  });

  it("counts for a request and no tokens, and in debt", async () => {
    answering(() =>
      Response.json({
        ...message,
        stop_reason: "end_turn",
        usage: { input_tokens: 9_000, output_tokens: 1 },
      }),
    );
    await call("/t/count/v1/messages", { model: "claude", messages: MESSAGES });
    expect((await limitsOf("count"))["t"]?.level).toBeLessThan(0);
    const sent = answering(() => Response.json({ input_tokens: 14 }));
    const body = { model: "claude", messages: MESSAGES };
    const { response, text } = await call("/t/count/v1/messages/count_tokens", body);
    expect(response.status).toBe(200);
    expect(text).toBe('{"input_tokens":14}');
    expect(sent).toMatchObject([{ url: "https://anthropic.test/v1/messages/count_tokens", body }]);
    expect(response.headers.get("x-weir-held-tokens")).toBe("0");
    const { t, r } = await limitsOf("count");
    expect(t).toMatchObject({ held: 0, settledTotal: 9_001 });
    expect(r).toMatchObject({ held: 0, settledTotal: 2 });
    const refused = await call("/t/count/v1/messages", body);
    expect(refused.response.status).toBe(429);
    expect(refused.response.headers.get("anthropic-ratelimit-tokens-remaining")).toBe("0");
    expect(JSON.parse(refused.text)).toMatchObject({
      type: "error",
      error: { type: "rate_limit_error" },
      weir: { code: "tokens_exhausted", limit: "t" },
    });
  });

  it("refuses in its own words: no key, an unknown path, a wrong method, a provider that speaks otherwise", async () => {
    const sent = answering(() => Response.json({}));
    const body = { model: "claude", messages: MESSAGES };
    const noKey = await call("/t/said/v1/messages", body, { "x-api-key": "" });
    expect([noKey.response.status, JSON.parse(noKey.text)]).toMatchObject([
      401,
      { type: "error", error: { type: "authentication_error" }, weir: { code: "unauthenticated" } },
    ]);
    const unknown = await call("/t/said/v1/messages/batches", body);
    expect([unknown.response.status, JSON.parse(unknown.text)]).toMatchObject([
      404,
      { error: { type: "not_found_error" }, weir: { code: "unknown_path" } },
    ]);
    const mixed = await call("/t/said/v1/messages", { ...body, model: "gpt" });
    expect([mixed.response.status, JSON.parse(mixed.text)]).toMatchObject([
      400,
      { error: { type: "invalid_request_error" }, weir: { code: "invalid_request" } },
    ]);
    expect(JSON.parse(mixed.text).error.message).toMatch(/openai.*anthropic-messages/);
    const crossed = await call("/t/said/v1/chat/completions", body);
    expect([crossed.response.status, JSON.parse(crossed.text)]).toMatchObject([
      400,
      { error: { param: "model" } },
    ]);
    expect(JSON.parse(crossed.text).error.message).toMatch(/anthropic.*openai-chat/);
    expect(sent).toEqual([]);
  });
});

describe("OpenAI Responses", () => {
  const usage = { input_tokens: 90_000, output_tokens: 87, total_tokens: 90_087 };
  const answer = { id: "resp_1", object: "response", status: "completed", output: [], usage };

  it("TOK-16 TOK-27 allows what the route says for what it cannot see, and takes the rest as debt", async () => {
    const sent = answering(() => Response.json(answer));
    const body = { model: "gpt", previous_response_id: "resp_0", input: "and?", max_output_tokens: 100 };
    const { response } = await call("/t/unseen/v1/responses", body, { "x-weir-route": "unseen" });
    expect(response.status).toBe(200);
    expect(sent).toMatchObject([{ url: "https://openai.test/v1/responses", body }]);
    const held = Number(response.headers.get("x-weir-held-tokens"));
    expect(held).toBeGreaterThan(1_100);
    expect(held).toBeLessThan(1_150);
    const { t } = await limitsOf("unseen");
    expect(t).toMatchObject({ held: 0, settledTotal: 90_087 });
    expect(t?.debt).toBeGreaterThan(80_000);
  });

  it("TOK-27 holds what the provider counts, on a route that asks it", async () => {
    const sent = answering((url) =>
      Response.json(url.endsWith("/input_tokens") ? { input_tokens: 2_000 } : answer),
    );
    const body = { model: "gpt", previous_response_id: "resp_0", input: "and?", max_output_tokens: 100 };
    const { response } = await call("/t/asked/v1/responses", body, { "x-weir-route": "asking" });
    expect(response.headers.get("x-weir-held-tokens")).toBe("2100");
    expect(sent.map(({ url }) => url)).toEqual([
      "https://openai.test/v1/responses/input_tokens",
      "https://openai.test/v1/responses",
    ]);
  });

  it("settles a stream by the event that ends it", async () => {
    answering(() =>
      events(
        { type: "response.created", response: { id: "resp_1", status: "in_progress", usage: null } },
        { type: "response.output_text.delta", delta: "Wide." },
        {
          type: "response.incomplete",
          response: { ...answer, status: "incomplete", usage: { input_tokens: 40, output_tokens: 9 } },
        },
      ),
    );
    await call("/t/streamed/v1/responses", { model: "gpt", input: "hi", stream: true });
    expect((await limitsOf("streamed"))["t"]).toMatchObject({ held: 0, settledTotal: 49 });
  });

  it("keeps the hold of an answer that is made in the background, until it is known", async () => {
    answering(() =>
      Response.json({ id: "resp_9", object: "response", status: "queued", output: [], usage: null }),
    );
    await call("/t/background/v1/responses", {
      model: "gpt",
      input: "hi",
      background: true,
      max_output_tokens: 50,
    });
    const balance = await env.TENANT_LEDGER.getByName("v1:background").balance();
    expect(balance.reconciling).toMatchObject({ count: 1 });
    expect(balance.limits.find(({ name }) => name === "t")?.held).toBeGreaterThan(50);
  });
});

describe("OpenAI Embeddings", () => {
  const path = (tenant: string) => `/t/${tenant}/v1/embeddings`;
  const vectors = {
    object: "list",
    data: [{ embedding: Array.from({ length: 3_000 }, () => 0.123_456_789) }],
  };

  it("TOK-13 are held by the number of token ids, with no output beside it", async () => {
    for (const [index, input, expected] of [
      [1, [1212, 318, 257, 1332], "4"],
      [2, [[1212, 318], [257]], "3"],
    ] as const) {
      answering(() => Response.json({ ...vectors, usage: { prompt_tokens: 5, total_tokens: 5 } }));
      const body = { model: "text-embedding-3-small", input };
      const { response, text } = await call(path(`vectors${index}`), body);
      expect(response.status).toBe(200);
      expect(JSON.parse(text)).toMatchObject(vectors);
      expect(response.headers.get("x-weir-held-tokens")).toBe(expected);
      expect((await limitsOf(`vectors${index}`))["t"]).toMatchObject({ held: 0, settledTotal: 5 });
    }
  });

  it("TOK-14 a batch that can never pass is refused at once, by the provider's bounds or the tenant's", async () => {
    const sent = answering(() => Response.json({}));
    const ids = Array.from({ length: 150 }, (_, i) => i);
    const batch = { model: "text-embedding-3-small", input: Array.from({ length: 2_048 }, () => ids) };
    const { response, text } = await call(path("batch"), batch);
    expect(response.status).toBe(400);
    expect(JSON.parse(text)).toMatchObject({
      error: { code: "context_length_exceeded", param: "input" },
      weir: { code: "request_too_large", requested: 307_200, available: 300_000 },
    });
    expect(response.headers.get("x-should-retry")).toBe("false");
    // Within what the provider takes, and beyond what this tenant could ever have.
    const half = { ...batch, input: batch.input.slice(0, 1_024) };
    const other = await call(path("batch"), half);
    expect(other.response.status).toBe(400);
    expect(JSON.parse(other.text)).toMatchObject({
      weir: { code: "request_too_large", limit: "t", available: 5_000 },
    });
    expect(sent).toEqual([]);
  });
});

describe("Gemini", () => {
  const path = (tenant: string, verb: string) => `/t/${tenant}/v1beta/models/gemini-2.5-flash:${verb}`;
  const body = { contents: [{ role: "user", parts: [{ text: "How wide is the river?" }] }] };
  const usageMetadata = {
    promptTokenCount: 8,
    candidatesTokenCount: 3,
    thoughtsTokenCount: 20,
    totalTokenCount: 31,
  };
  const chunk = (text: string, more: object = {}) => ({
    candidates: [{ content: { parts: [{ text }] }, ...more }],
  });

  it("settles thoughts beside the candidates, and injects its ceiling where it belongs", async () => {
    const sent = answering(() =>
      Response.json({ ...chunk("Wide.", { finishReason: "STOP" }), usageMetadata }),
    );
    const { response } = await call(path("gem", "generateContent"), body);
    expect(response.status).toBe(200);
    expect(sent).toMatchObject([
      {
        url: "https://gemini.test/v1beta/models/gemini-2.5-flash:generateContent",
        body: { ...body, generationConfig: { maxOutputTokens: 200 } },
      },
    ]);
    expect(sent[0]?.headers.get("x-goog-api-key")).toBe(SECRET);
    expect((await limitsOf("gem"))["t"]).toMatchObject({ held: 0, settledTotal: 31 });
  });

  it("streams as events and as one JSON array, every byte as it came", async () => {
    const pieces = [chunk("Wi"), chunk("de.", { finishReason: "STOP" })];
    const last = { ...pieces[1], usageMetadata };
    answering(() => events(pieces[0] ?? {}, last));
    await call(path("events", "streamGenerateContent?alt=sse"), body);
    expect((await limitsOf("events"))["t"]).toMatchObject({ held: 0, settledTotal: 31 });
    const array = `[${JSON.stringify(pieces[0])}\n,\r\n${JSON.stringify(last)}]`;
    answering(() => new Response(array, { headers: { "content-type": "application/json" } }));
    const { text } = await call(path("array", "streamGenerateContent"), body);
    expect(text).toBe(array);
    expect((await limitsOf("array"))["t"]).toMatchObject({ held: 0, settledTotal: 31 });
  });

  it("takes its key from the query alone as well, and never two", async () => {
    const sent = answering(() =>
      Response.json({ ...chunk("Wide.", { finishReason: "STOP" }), usageMetadata }),
    );
    const key = await keyOf("keyed");
    const keyed = await call(`${path("keyed", "generateContent")}?key=${key}`, body, { "x-api-key": "" });
    expect(keyed.response.status).toBe(200);
    expect(sent[0]?.url).toBe("https://gemini.test/v1beta/models/gemini-2.5-flash:generateContent");
    const two = await call(`${path("keyed", "generateContent")}?key=${key}x`, body);
    expect(two.response.status).toBe(400);
    const elsewhere = await call(`/t/keyed/v1/chat/completions?key=${key}`, {}, { "x-api-key": "" });
    expect(elsewhere.response.status).toBe(401);
    expect(sent).toHaveLength(1);
  });

  it("refuses in its own words, with the time after which it fits", async () => {
    answering(() =>
      Response.json({
        ...chunk("x", { finishReason: "STOP" }),
        usageMetadata: { ...usageMetadata, candidatesTokenCount: 9_000, totalTokenCount: 9_031 },
      }),
    );
    await call(path("poor", "generateContent"), body);
    const { response, text } = await call(path("poor", "generateContent"), body);
    expect(response.status).toBe(429);
    expect(JSON.parse(text)).toMatchObject({
      error: {
        code: 429,
        status: "RESOURCE_EXHAUSTED",
        details: [{ "@type": "type.googleapis.com/google.rpc.RetryInfo" }],
      },
      weir: { code: "tokens_exhausted" },
    });
    const counted = await call(path("poor", "countTokens"), body);
    expect(counted.response.status).toBe(200);
  });
});

describe("the provider's own count", () => {
  const body = { model: "claude", messages: MESSAGES };
  const answer = {
    id: "msg_1",
    type: "message",
    content: [],
    stop_reason: "end_turn",
    usage: { input_tokens: 1_234, output_tokens: 1 },
  };
  const ask = (tenant: string, route: string) =>
    call(`/t/${tenant}/v1/messages`, body, { "x-weir-route": route });
  const held = ({ response }: Called) => Number(response.headers.get("x-weir-held-tokens")) - 200;

  it("TOK-08 is held to the token where the route asks for it", async () => {
    const sent = answering((url) =>
      Response.json(url.endsWith("/count_tokens") ? { input_tokens: 1_234 } : answer),
    );
    expect(held(await ask("counted", "asking"))).toBe(1_234);
    expect(sent[0]).toMatchObject({ url: "https://anthropic.test/v1/messages/count_tokens", body });
    expect(sent[0]?.headers.get("x-api-key")).toBe(SECRET);
  });

  const never = (signal: AbortSignal) =>
    new Promise<Response>((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));

  const FAILURES: readonly (readonly [string, (signal: AbortSignal) => Response | Promise<Response>])[] = [
    ["an error", () => Response.json({ error: {} }, { status: 529 })],
    ["no count", () => Response.json({ input_tokens: -1 })],
    ["a page", () => new Response("<html>")],
    ["nothing in time", never],
  ];

  it.each(FAILURES)(
    "TOK-08 with %s is held by the most that ours can be off, or refused",
    async (name, failure) => {
      const tenant = `vain-${name.replaceAll(" ", "-")}`;
      const plain = answering(() => Response.json(answer));
      const own = held(await ask(tenant, "default")) / 1.3;
      expect(plain).toHaveLength(1);
      answering((url, signal) => (url.endsWith("/count_tokens") ? failure(signal) : Response.json(answer)));
      const bound = held(await ask(`${tenant}-bound`, "asking"));
      expect(bound).toBeGreaterThanOrEqual(2.5 * own - 3);
      expect(bound).toBeLessThanOrEqual(2.5 * own + 3);
      const sent = answering((url, signal) =>
        url.endsWith("/count_tokens") ? failure(signal) : Response.json(answer),
      );
      const { response, text } = await ask(`${tenant}-strict`, "strict");
      expect(response.status).toBe(502);
      expect(JSON.parse(text)).toMatchObject({ type: "error", weir: { code: "provider_unreachable" } });
      expect(sent).toHaveLength(1);
    },
  );
});
