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

const POLICY = {
  version: 1,
  providers: {
    anthropic: provider("anthropic", "https://anthropic.test"),
    openai: provider("openai", "https://openai.test/v1"),
  },
  models: { claude: model("anthropic"), gpt: model("openai") },
  routes: { default: { maxOutputTokens: 200, injectMaxOutputTokens: true } },
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
    headers: headers ?? { "x-api-key": await keyOf(tenant) },
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
function answering(answer: () => Response): Sent[] {
  const sent: Sent[] = [];
  vi.spyOn(globalThis, "fetch").mockImplementation(async (input, init) => {
    const request = new Request(input, init);
    sent.push({ url: request.url, headers: request.headers, body: await request.json() });
    return answer();
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
    const noKey = await call("/t/said/v1/messages", body, {});
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
