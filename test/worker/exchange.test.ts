import {
  abortAllDurableObjects,
  createExecutionContext,
  runInDurableObject,
  waitOnExecutionContext,
} from "cloudflare:test";
import { env } from "cloudflare:workers";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { handle } from "../../src/gateway/handle.ts";
import { mintVirtualKey } from "../../src/gateway/virtual-key.ts";
import type { RecordedEvent } from "../../src/ledger/types.ts";
import { parsePolicy } from "../../src/policy/schema.ts";
import type { Settings } from "../../src/settings.ts";
import { CHAT_PATH, endpointOf } from "../support/endpoints.ts";

const keySecret = "exchange-tests-secret-of-32-characters";
const SECRET = "sk-provider-secret";

function settingsWith(route: object, limit: object = {}): Settings {
  const parsed = parsePolicy({
    version: 1,
    providers: { p: { dialect: "openai", baseUrl: "https://provider.test/v1", apiKeySecret: "PROVIDER_P" } },
    models: { m: { provider: "p", contextTokens: 100_000, maxOutputTokens: 1_000 } },
    routes: { default: route },
    limits: [{ name: "t", kind: "bucket", unit: "tokens", capacity: 10_000, refillPerMinute: 0, ...limit }],
    tenants: { "*": {} },
  });
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  const providerSecrets = new Map([["PROVIDER_P", SECRET]]);
  return { policy: parsed.policy, policyHash: "h", policyEpoch: 1, keySecret, providerSecrets, local: false };
}

let tenant = "";
let named = 0;
beforeEach(() => {
  named += 1;
  tenant = `exchange-${named}`;
});
afterEach(() => {
  vi.restoreAllMocks();
});

interface Call {
  readonly body?: object;
  readonly settings?: Settings;
  readonly headers?: Record<string, string>;
  readonly keyClass?: "interactive" | "batch";
  /** Between the answer's headers and its body. */
  readonly midway?: () => Promise<void>;
  readonly signal?: AbortSignal;
}

/** One request through the gateway, with a provider that is scripted; resolves when all is settled. */
async function call(answer: () => Response | Promise<Response>, options: Call = {}) {
  const {
    body,
    settings = settingsWith({}),
    headers = {},
    keyClass = "interactive",
    midway,
    signal = null,
  } = options;
  vi.spyOn(globalThis, "fetch").mockImplementation(async () => answer());
  const order = {
    secret: keySecret,
    keyId: "k",
    user: null,
    tenant,
    class: keyClass,
    issuedAtMs: Date.now(),
    expiresAtMs: null,
  };
  const request = new Request(`https://weir.test/t/${tenant}/v1/chat/completions`, {
    method: "POST",
    signal,
    headers: { authorization: `Bearer ${await mintVirtualKey(order)}`, ...headers },
    body: JSON.stringify({
      model: "m",
      max_tokens: 50,
      messages: [{ role: "user", content: "hi" }],
      ...body,
    }),
  });
  const ctx = createExecutionContext();
  const context = { env, settings, waitUntil: (work: Promise<unknown>) => ctx.waitUntil(work) };
  const response = await handle(request, tenant, endpointOf(CHAT_PATH), context);
  await midway?.();
  const text = await response.text();
  await waitOnExecutionContext(ctx);
  return { response, text };
}

async function events(): Promise<RecordedEvent[]> {
  const rows = await runInDurableObject(env.TENANT_LEDGER.getByName(`v1:${tenant}`), (_, state) =>
    state.storage.sql.exec<{ events: string }>("SELECT events FROM batch ORDER BY seq").toArray(),
  );
  return rows.flatMap((row) => JSON.parse(row.events) as RecordedEvent[]);
}

async function eventOf<T extends RecordedEvent["type"]>(
  type: T,
): Promise<Extract<RecordedEvent, { type: T }>> {
  const found = (await events()).find((event) => event.type === type);
  if (found === undefined) throw new Error(`no ${type}`);
  return found as Extract<RecordedEvent, { type: T }>;
}

const chunk = (payload: object) => `data: ${JSON.stringify(payload)}\n\n`;
const delta = (content: string) => chunk({ choices: [{ index: 0, delta: { content } }] });
const finish = chunk({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }] });
const used = (prompt: number, completion: number) =>
  chunk({
    choices: [],
    usage: { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion },
  });
const DONE = "data: [DONE]\n\n";

const stream =
  (...pieces: string[]) =>
  () =>
    new Response(pieces.join(""), { headers: { "content-type": "text/event-stream" } });

describe("what is settled, and on what grounds", () => {
  it("exactly, by the provider's figure", async () => {
    await call(stream(delta("a"), finish, used(7, 3), DONE), { body: { stream: true } });
    expect(await eventOf("settled")).toMatchObject({
      basis: "exact",
      usage: { inputTokens: 7, outputTokens: 3 },
    });
  });

  it("STR-33 as an under-estimate, by what was seen, where none came", async () => {
    await call(stream(delta("one"), delta(" two"), finish, DONE), { body: { stream: true } });
    expect(await eventOf("settled")).toMatchObject({ basis: "under_estimate", usage: { outputTokens: 2 } });
  });

  it("as an under-estimate where the provider wrote on after its figure", async () => {
    await call(stream(used(7, 0), delta("one"), delta(" two"), DONE), { body: { stream: true } });
    expect(await eventOf("settled")).toMatchObject({
      basis: "under_estimate",
      usage: { inputTokens: 7, outputTokens: 2 },
    });
  });

  it("as an under-estimate where nobody waited for the answer", async () => {
    const settings = settingsWith({});
    const provider = settings.policy.providers["p"];
    if (provider !== undefined) provider.headersTimeoutMs = 20;
    const never = () =>
      new Promise<Response>((_, reject) => setTimeout(() => reject(new Error("aborted")), 60));
    const { response } = await call(never, { settings });
    expect(response.status).toBe(504);
    expect(await eventOf("settled")).toMatchObject({ basis: "under_estimate", usage: { outputTokens: 0 } });
  });

  it("a stream that does not say what it is, is read as the request asked", async () => {
    const { text } = await call(
      () => new Response(new Blob([delta("a") + finish + used(7, 1) + DONE]).stream()),
      { body: { stream: true } },
    );
    expect(text).toBe(delta("a") + finish + DONE);
    expect(await eventOf("settled")).toMatchObject({ basis: "exact", usage: { outputTokens: 1 } });
  });

  it("after a capture as soon as much was produced, whatever the clock says", async () => {
    const long = delta(" river".repeat(600));
    await call(stream(long, delta("."), finish, used(7, 601), DONE), { body: { stream: true } });
    expect((await eventOf("captured")).captured.outputTokens).toBeGreaterThanOrEqual(600);
  });

  it("SET-04 PLA-10 on a fresh stub, when the session broke in the middle", async () => {
    vi.spyOn(console, "error").mockImplementation(() => {});
    await call(stream(delta("a"), finish, used(7, 3), DONE), {
      body: { stream: true },
      midway: () => abortAllDurableObjects(),
    });
    expect(await eventOf("settled")).toMatchObject({ usage: { inputTokens: 7, outputTokens: 3 } });
  });
});

describe("a call that may never have arrived", () => {
  it("is frozen when its connection was lost: that proves nothing", async () => {
    const { response } = await call(() => Promise.reject(new Error("Network connection lost.")));
    expect(response.status).toBe(502);
    expect(await eventOf("expired")).toMatchObject({ cause: "outcome_unknown", to: "RECONCILING" });
  });

  it("is released whole, and not sent, for a caller who had left before", async () => {
    const fetched = vi.fn(() => new Response());
    await call(fetched, { signal: AbortSignal.abort() });
    expect(fetched).not.toHaveBeenCalled();
    expect(await eventOf("released")).toMatchObject({ evidence: "not_sent" });
  });

  it("LIM-09 has its id closed behind it, where the ledger failed before it answered", async () => {
    vi.spyOn(console, "error").mockImplementation(() => {});
    const sql = (statement: string) =>
      runInDurableObject(env.TENANT_LEDGER.getByName(`v1:${tenant}`), (_, state) => {
        state.storage.sql.exec(statement);
      });
    await sql("CREATE TRIGGER full BEFORE INSERT ON batch BEGIN SELECT RAISE(ABORT, 'disk full'); END");
    const { response } = await call(() => new Response(), { midway: () => sql("DROP TRIGGER full") });
    expect(response.status).toBe(503);
    const requestId = response.headers.get("x-weir-request-id");
    expect(await eventOf("forestalled")).toMatchObject({ requestId });
  });
});

describe("a caller who leaves when all has been said", () => {
  it("pays what the provider reports of it", async () => {
    let controller: ReadableStreamDefaultController<Uint8Array> | null = null;
    const encoder = new TextEncoder();
    const body = new ReadableStream<Uint8Array>({
      start(given) {
        controller = given;
        given.enqueue(encoder.encode(delta("x") + finish));
      },
    });
    const ctx = createExecutionContext();
    vi.spyOn(globalThis, "fetch").mockImplementation(async (_, init) => {
      init?.signal?.addEventListener("abort", () => controller?.error(init.signal?.reason));
      return new Response(body, { headers: { "content-type": "text/event-stream" } });
    });
    const order = {
      secret: keySecret,
      keyId: "k",
      user: null,
      tenant,
      class: "interactive" as const,
      issuedAtMs: Date.now(),
      expiresAtMs: null,
    };
    const caller = new AbortController();
    const request = new Request(`https://weir.test/t/${tenant}/v1/chat/completions`, {
      method: "POST",
      signal: caller.signal,
      headers: { authorization: `Bearer ${await mintVirtualKey(order)}` },
      body: JSON.stringify({
        model: "m",
        stream: true,
        max_tokens: 50,
        messages: [{ role: "user", content: "hi" }],
      }),
    });
    const context = {
      env,
      settings: settingsWith({}),
      waitUntil: (work: Promise<unknown>) => ctx.waitUntil(work),
    };
    const response = await handle(request, tenant, endpointOf(CHAT_PATH), context);
    const reader = response.body?.getReader();
    await reader?.read();
    // Both ways in which a departure is noticed.
    caller.abort();
    await reader?.cancel();
    const late = controller as ReadableStreamDefaultController<Uint8Array> | null;
    late?.enqueue(encoder.encode(used(7, 905) + DONE));
    late?.close();
    await waitOnExecutionContext(ctx);
    expect(await eventOf("settled")).toMatchObject({
      basis: "exact",
      usage: { inputTokens: 7, outputTokens: 905 },
    });
  });
});

describe("what is held", () => {
  const ok = stream(delta("a"), finish, used(7, 1), DONE);

  it("TOK-18 the ceiling times the completions", async () => {
    await call(ok, { body: { stream: true, n: 4 } });
    expect((await eventOf("reserved")).hold.outputTokens).toBe(200);
  });

  it("a class that no header raises", async () => {
    await call(ok, { body: { stream: true }, keyClass: "batch", headers: { "x-weir-class": "interactive" } });
    expect(await eventOf("reserved")).toMatchObject({ class: "batch" });
  });

  it("never more than the route allows one request", async () => {
    const { response, text } = await call(ok, { settings: settingsWith({ perRequestMaxTokens: 40 }) });
    expect(response.status).toBe(400);
    expect(JSON.parse(text)).toMatchObject({
      weir: { code: "request_too_large", limit: "route:default", available: 40 },
    });
  });
});

describe("a provider's error", () => {
  it("passes with its bytes, less our secret, in its headers too", async () => {
    const error = `{"error":{"message":"bad key ${SECRET}"}} `;
    const headers = { "www-authenticate": `Bearer realm="${SECRET}"`, "x-request-id": "r" };
    const { response, text } = await call(() => new Response(error, { status: 401, headers }));
    expect(response.status).toBe(401);
    expect(text).toBe('{"error":{"message":"bad key [masked]"}} ');
    expect(response.headers.get("www-authenticate")).toBeNull();
    expect(response.headers.get("x-request-id")).toBe("r");
    expect(await eventOf("released")).toMatchObject({ evidence: "provider_refused" });
  });

  it("keeps our secret out of an error inside a 200 as well", async () => {
    const error = chunk({ error: { message: `bad key ${SECRET}` } });
    const { text } = await call(stream(delta("a"), error), { body: { stream: true } });
    expect(text).toBe(delta("a") + error.replace(SECRET, "[masked]"));
  });

  it("is not waited for when its body stalls", async () => {
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        controller.enqueue(new TextEncoder().encode("half"));
        setTimeout(() => controller.close(), 2_500);
      },
    });
    const startMs = performance.now();
    const { response, text } = await call(() => new Response(body, { status: 500 }), {
      midway: async () => expect(performance.now() - startMs).toBeLessThan(2_400),
    });
    expect(response.status).toBe(500);
    expect(text).toBe("half");
  });
});
