import { describe, expect, it } from "vitest";
import type { RequestRecord } from "./journal.ts";
import type { Env } from "./settings.ts";
import { createSimulator } from "./simulator.ts";

const FAST: Env = { SIM_FIRST_TOKEN_MS: "0", SIM_TOKEN_MS: "0" };
const MESSAGES = [{ role: "user", content: "How wide is the river?" }];

function provider(env: Env = {}) {
  const simulator = createSimulator();
  const tasks: Promise<unknown>[] = [];
  const ctx = { waitUntil: (task: Promise<unknown>) => void tasks.push(task) };
  const fetch = (path: string, init?: RequestInit) =>
    simulator.fetch(new Request(`http://provider.test${path}`, init), { ...FAST, ...env }, ctx);
  return {
    fetch,
    chat: (model: string, body: object = {}, init: RequestInit = {}) =>
      fetch("/v1/chat/completions", {
        ...init,
        method: "POST",
        body: JSON.stringify({ model, messages: MESSAGES, ...body }),
      }),
    requests: async () => (await fetch("/sim/requests")).json<RequestRecord[]>(),
    idle: () => Promise.all(tasks),
  };
}

interface Chunk {
  choices: { index: number; delta: { content?: string }; finish_reason: string | null }[];
  usage?: { prompt_tokens: number; completion_tokens: number; total_tokens: number } | null;
}

function payloads(stream: string): string[] {
  return stream.split(/\r?\n/).flatMap((line) => (line.startsWith("data: ") ? [line.slice(6)] : []));
}

function chunks(stream: string): Chunk[] {
  return payloads(stream)
    .filter((payload) => payload !== "[DONE]")
    .map((payload) => JSON.parse(payload) as Chunk);
}

function textOf(all: readonly Chunk[], index = 0): string {
  const choices = all.flatMap((chunk) => chunk.choices).filter((choice) => choice.index === index);
  return choices.map((choice) => choice.delta.content ?? "").join("");
}

describe("chat completions", () => {
  it("streams words, a finish reason, usage and [DONE], and remembers the bytes", async () => {
    const { chat, fetch, idle, requests } = provider();
    const response = await chat("gpt-4o-mini?tokens=5", {
      stream: true,
      stream_options: { include_usage: true },
    });
    const stream = await response.text();
    await idle();
    const all = chunks(stream);
    expect(response.headers.get("content-type")).toContain("text/event-stream");
    expect(textOf(all).trim().split(" ")).toHaveLength(5);
    expect(all.slice(0, -1).every((chunk) => chunk.usage === null)).toBe(true);
    expect(all.at(-2)?.choices[0]?.finish_reason).toBe("stop");
    expect(all.at(-1)).toMatchObject({
      choices: [],
      usage: { prompt_tokens: 13, completion_tokens: 5, total_tokens: 18 },
    });
    expect(stream.endsWith("data: [DONE]\n\n")).toBe(true);
    const [record] = await requests();
    expect(record).toMatchObject({ model: "gpt-4o-mini", stream: true, outcome: "finished", sentTokens: 5 });
    expect(record?.id).toBe(response.headers.get("x-request-id"));
    expect(await (await fetch(`/sim/stream/${record?.id}`)).text()).toBe(stream);
  });

  it("answers without a stream, several choices, clipped to the larger ceiling", async () => {
    const { chat } = provider();
    const body = { n: 2, max_tokens: 2, max_completion_tokens: 3 };
    const answer = await (await chat("gpt-4o?tokens=9", body)).json();
    expect(answer).toMatchObject({
      object: "chat.completion",
      choices: [
        { index: 0, finish_reason: "length" },
        { index: 1, finish_reason: "length" },
      ],
      usage: { prompt_tokens: 13, completion_tokens: 6, total_tokens: 19 },
    });
  });

  it("answers the same body alike, and another seed differently", async () => {
    const say = async (env: Env) =>
      textOf(chunks(await (await provider(env).chat("gpt-4o", { stream: true })).text()));
    expect(await say({})).toBe(await say({}));
    expect(await say({})).not.toBe(await say({ SIM_SEED: "other" }));
  });

  it("refuses a wrong key, an unreadable body and a wrong path, in OpenAI's shape", async () => {
    const { chat, fetch, requests } = provider({ SIM_API_KEY: "sk-right" });
    const wrong = await chat("gpt-4o", {}, { headers: { authorization: "Bearer sk-wrong" } });
    expect([wrong.status, await wrong.json()]).toMatchObject([401, { error: { code: "invalid_api_key" } }]);
    const headers = { authorization: "Bearer sk-right" };
    const garbled = await fetch("/v1/chat/completions", { method: "POST", body: "{", headers });
    expect([garbled.status, await garbled.json()]).toMatchObject([
      400,
      { error: { type: "invalid_request_error" } },
    ]);
    expect((await chat("gpt-4o", { max_tokens: "9" }, { headers })).status).toBe(400);
    expect((await fetch("/v1/nothing")).status).toBe(404);
    expect((await fetch("/v1/models")).status).toBe(401);
    expect((await requests())[0]).toMatchObject({
      outcome: "refused",
      headers: { authorization: "***rong" },
    });
  });

  it("enforces requests per minute and says so in every header", async () => {
    const { chat } = provider({ SIM_RPM: "1" });
    const first = await chat("gpt-4o?tokens=1");
    expect(first.headers.get("x-ratelimit-remaining-requests")).toBe("0");
    expect(first.headers.get("x-ratelimit-limit-tokens")).toBe("2000000");
    const second = await chat("gpt-4o?tokens=1");
    expect([second.status, second.headers.get("retry-after")]).toEqual([429, "60"]);
    expect(await second.json()).toMatchObject({ error: { type: "requests", code: "rate_limit_exceeded" } });
  });
});

describe("misbehaviour", () => {
  const streamed = async (model: string, body: object = {}) => {
    const here = provider();
    const response = await here.chat(model, { stream: true, ...body });
    const text = await response.text();
    await here.idle();
    return { text, response, record: (await here.requests())[0] };
  };

  it("answers the ordered status, page or redirect", async () => {
    const { chat } = provider();
    const overloaded = await chat("m?status=529&retryAfter=3");
    expect([overloaded.status, overloaded.headers.get("retry-after")]).toEqual([529, "3"]);
    const login = await chat("m?html=1");
    expect([login.status, login.headers.get("content-type")]).toEqual([200, "text/html; charset=utf-8"]);
    expect((await chat("m?fail500text=1")).status).toBe(502);
    const moved = await chat(`m?redirect=${encodeURIComponent("http://elsewhere.test/x?y=1")}`);
    expect([moved.status, moved.headers.get("location")]).toEqual([307, "http://elsewhere.test/x?y=1"]);
  });

  it("breaks the connection after N tokens", async () => {
    const { chat, idle, requests } = provider();
    const response = await chat("m?tokens=9&drop=2", { stream: true });
    await expect(response.text()).rejects.toThrow("reset");
    await idle();
    expect((await requests())[0]).toMatchObject({
      outcome: "dropped",
      sentTokens: 2,
      usage: { completionTokens: 2 },
    });
  });

  it("reports an error inside the stream", async () => {
    const { text, record } = await streamed("m?tokens=9&errorAfter=1");
    expect(JSON.parse(payloads(text).at(-1) ?? "")).toMatchObject({ error: { type: "server_error" } });
    expect(record).toMatchObject({ outcome: "error", sentTokens: 1 });
  });

  it("puts usage elsewhere, everywhere or nowhere", async () => {
    const inChoices = chunks((await streamed("m?tokens=2&usageInChoices=1", { n: 2 })).text);
    expect(inChoices.filter((chunk) => chunk.usage != null)).toEqual([inChoices.at(-1)]);
    expect(inChoices.at(-1)).toMatchObject({ choices: [{ index: 1 }], usage: { completion_tokens: 4 } });
    const running = chunks((await streamed("m?tokens=2&continuousUsage=1")).text);
    expect(running.map((chunk) => chunk.usage?.completion_tokens)).toEqual([0, 1, 2, 2]);
    const none = await streamed("m?tokens=2&nousage=1&nodone=1", { stream_options: { include_usage: true } });
    expect(none.text).not.toContain("usage");
    expect(none.text).not.toContain("[DONE]");
  });

  it("cuts the bytes anywhere, characters and line ends included, without changing them", async () => {
    const { chat, idle, fetch } = provider();
    const response = await chat("m?tokens=20&unicode=1&crlf=1&cut=3", { stream: true });
    const pieces: Uint8Array[] = [];
    for await (const piece of response.body ?? []) pieces.push(piece);
    await idle();
    expect(new Set(pieces.slice(0, -1).map((piece) => piece.length))).toEqual(new Set([3]));
    const text = await new Blob(pieces).text();
    expect(text).toContain(": ping\r\n");
    expect(textOf(chunks(text)).trim().split(" ")).toHaveLength(20);
    expect(text).not.toContain("\uFFFD");
    expect(await (await fetch("/sim/stream/req_sim_000001")).text()).toBe(text);
  });

  it("notices at once that the client left, even in the middle of a stall", async () => {
    const { chat, idle, requests } = provider();
    const reader = (await chat("m?tokens=9&stall=2", { stream: true })).body?.getReader();
    for (let i = 0; i < 3; i++) await reader?.read();
    await reader?.cancel();
    const leaving = new AbortController();
    const unanswered = chat("m?stallHeaders=1", {}, { signal: leaving.signal });
    setTimeout(() => leaving.abort(), 10);
    expect((await unanswered).status).toBe(499);
    await idle();
    expect(await requests()).toMatchObject([
      { outcome: "client_closed", sentTokens: 2, usage: { completionTokens: 2 } },
      { outcome: "client_closed", sentTokens: 0, usage: null },
    ]);
  });

  it("forgets everything on reset", async () => {
    const { chat, fetch, requests } = provider({ SIM_RPM: "1" });
    await chat("m?tokens=1");
    expect((await fetch("/sim/reset", { method: "POST" })).status).toBe(204);
    expect(await requests()).toEqual([]);
    expect((await chat("m?tokens=1")).status).toBe(200);
  });
});
