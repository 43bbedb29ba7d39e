import { listDurableObjectIds } from "cloudflare:test";
import { env, exports } from "cloudflare:workers";
import { afterEach, describe, expect, it, vi } from "vitest";
import { BODY_BYTES_MAX } from "../../src/gateway/bounds.ts";
import { mintVirtualKey } from "../../src/gateway/virtual-key.ts";

const secret = String(env.WEIR_KEY_SECRET);
const HOUR_MS = 3_600_000;

const keyFor = (tenant: string, more: Partial<Parameters<typeof mintVirtualKey>[0]> = {}) =>
  mintVirtualKey({
    secret,
    keyId: "k1",
    user: null,
    tenant,
    class: "interactive",
    issuedAtMs: Date.now(),
    expiresAtMs: null,
    ...more,
  });

const CHAT = { model: "gpt-4o-mini", messages: [{ role: "user", content: "hi" }] };

function post(path: string, body: unknown, headers: Record<string, string> = {}): Promise<Response> {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return exports.default.fetch(`https://weir.test${path}`, { method: "POST", body: text, headers });
}

const bearer = async (tenant: string) => ({ authorization: `Bearer ${await keyFor(tenant)}` });

interface Refused {
  readonly error: {
    readonly message: string;
    readonly type: string;
    readonly code: string | null;
    readonly param: string | null;
  };
  readonly weir: { readonly code: string; readonly limitedBy: string; readonly requestId: string };
}

async function refusalOf(response: Response): Promise<{ status: number; code: string; body: Refused }> {
  const body = await response.json<Refused>();
  return { status: response.status, code: body.weir.code, body };
}

afterEach(() => {
  vi.restoreAllMocks();
});

describe("who may call", () => {
  it.each([
    ["no key", {}],
    ["garbage", { authorization: "Bearer sk-nothing" }],
    ["another gateway's key", { authorization: "other" }],
    ["an expired key", { authorization: "expired" }],
  ])("401 for %s, in the caller's dialect", async (_, headers: Record<string, string>) => {
    if (headers["authorization"] === "other")
      headers["authorization"] = `Bearer ${await keyFor("acme", { secret: "x".repeat(40) })}`;
    if (headers["authorization"] === "expired")
      headers["authorization"] = `Bearer ${await keyFor("acme", { expiresAtMs: Date.now() - HOUR_MS })}`;
    const response = await post("/t/acme/v1/chat/completions", CHAT, headers);
    expect(response.headers.get("x-should-retry")).toBe("false");
    expect(await refusalOf(response)).toMatchObject({
      status: 401,
      code: "unauthenticated",
      body: { error: { code: "invalid_api_key", param: null } },
    });
  });

  it("403 for another tenant's key, whatever the headers claim (SEC-04)", async () => {
    const headers = { ...(await bearer("acme")), "x-tenant-id": "other", "x-forwarded-for": "1.2.3.4" };
    expect(await refusalOf(await post("/t/other/v1/chat/completions", CHAT, headers))).toMatchObject({
      status: 403,
      code: "forbidden",
    });
  });

  it("400 for two different keys", async () => {
    const headers = { ...(await bearer("acme")), "x-api-key": await keyFor("acme", { keyId: "k2" }) };
    expect(await refusalOf(await post("/t/acme/v1/chat/completions", CHAT, headers))).toMatchObject({
      status: 400,
      code: "invalid_request",
    });
  });

  it("mints no object for a caller it does not know", async () => {
    const before = (await listDurableObjectIds(env.TENANT_LEDGER)).length;
    for (let i = 0; i < 20; i += 1)
      await (await post(`/t/nobody${i}/v1/chat/completions`, CHAT, await bearer("acme"))).text();
    expect((await listDurableObjectIds(env.TENANT_LEDGER)).length).toBe(before);
  });
});

describe("what may be asked", () => {
  it.each([
    ["a body that is no JSON", "{", 400, "invalid_request"],
    ["TOK-29 messages that are none", { ...CHAT, messages: "hi" }, 400, "invalid_request"],
    ["a ceiling in words", { ...CHAT, max_tokens: "12" }, 400, "invalid_request"],
    [
      "SEC-09 a member twice",
      '{"model":"gpt-4o-mini","max_tokens":1,"max\\u005ftokens":9,"messages":[{"role":"user","content":"x"}]}',
      400,
      "invalid_request",
    ],
    ["a model that the policy lacks", { ...CHAT, model: "gpt-9-ultra" }, 404, "unknown_model"],
    [
      "LIM-08 more than the bucket ever holds",
      { ...CHAT, messages: [{ role: "user", content: "word ".repeat(130_000) }] },
      400,
      "request_too_large",
    ],
  ])("SET-03 refuses %s, and holds nothing", async (_, body, status, code) => {
    const fetched = vi.spyOn(globalThis, "fetch");
    const headers = await bearer("strict");
    const response = await post("/t/strict/v1/chat/completions", body, headers);
    expect(response.headers.get("x-should-retry")).toBe("false");
    expect(response.headers.get("retry-after")).toBeNull();
    expect(await refusalOf(response)).toMatchObject({
      status,
      code,
      body: { weir: { limitedBy: "gateway" } },
    });
    expect(fetched).not.toHaveBeenCalled();
    const balance = await (
      await exports.default.fetch("https://weir.test/t/strict/balance", { headers })
    ).json<{ limits: { held: number; settledTotal: number }[] }>();
    expect(balance.limits.every((limit) => limit.held === 0 && limit.settledTotal === 0)).toBe(true);
  });

  it("an unknown route or class is named", async () => {
    const headers = await bearer("acme");
    expect(
      await refusalOf(
        await post("/t/acme/v1/chat/completions", CHAT, { ...headers, "x-weir-route": "nope" }),
      ),
    ).toMatchObject({ status: 404, code: "unknown_route" });
    expect(
      await refusalOf(await post("/t/acme/v1/chat/completions", CHAT, { ...headers, "x-weir-class": "vip" })),
    ).toMatchObject({ status: 400 });
  });

  it("PLA-17 counts the body as it comes, whatever its length claims", async () => {
    const chunk = new Uint8Array(1024 * 1024).fill(0x20);
    let sent = 0;
    const body = new ReadableStream({
      pull(controller) {
        sent += 1;
        if (sent > 64) controller.close();
        else controller.enqueue(chunk);
      },
    });
    const response = await exports.default.fetch("https://weir.test/t/acme/v1/chat/completions", {
      method: "POST",
      body,
      headers: await bearer("acme"),
    });
    expect(await refusalOf(response)).toMatchObject({ status: 413, code: "body_too_large" });
    expect(sent).toBeLessThan(BODY_BYTES_MAX / chunk.byteLength + 8);
  });

  it.each([
    ["POST", "/t/acme/v1/images/generations", 404, "unknown_path"],
    ["POST", "/t/acme/v1/chat/completions/x", 404, "unknown_path"],
    ["GET", "/t/acme/v1/chat/completions", 405, "method_not_allowed"],
    ["POST", "/t/acme/v1%2fchat/completions", 400, "invalid_request"],
    ["POST", "/t/acme/v1/%zz", 400, "invalid_request"],
    ["POST", "/t/ACME!/v1/chat/completions", 400, "invalid_request"],
  ])("LIM-11 %s %s is refused", async (method, path, status, code) => {
    const response = await exports.default.fetch(`https://weir.test${path}`, {
      method,
      headers: await bearer("acme"),
      ...(method === "POST" ? { body: "{}" } : {}),
    });
    expect(await refusalOf(response)).toMatchObject({ status, code });
  });

  it("answers in problem+json where no dialect is spoken", async () => {
    const response = await exports.default.fetch("https://weir.test/t/acme/balance");
    expect(response.headers.get("content-type")).toBe("application/problem+json");
    expect(await response.json()).toMatchObject({
      status: 401,
      code: "unauthenticated",
      limitedBy: "gateway",
    });
  });
});

describe("when the ledger cannot be reached", () => {
  it("LIM-09 fails closed: 503, nothing is sent, and the id is closed behind it", async () => {
    const fetched = vi.spyOn(globalThis, "fetch");
    const ledger = env.TENANT_LEDGER.getByName("v1:broken");
    vi.spyOn(console, "error").mockImplementation(() => {});
    const { runInDurableObject } = await import("cloudflare:test");
    await runInDurableObject(
      ledger,
      (_, state) =>
        void state.storage.sql.exec(
          "CREATE TRIGGER full BEFORE INSERT ON batch BEGIN SELECT RAISE(ABORT, 'disk full'); END",
        ),
    );
    const response = await post("/t/broken/v1/chat/completions", CHAT, await bearer("broken"));
    expect(response.headers.get("x-weir-degraded")).toBe("fail_closed");
    expect(Number(response.headers.get("retry-after"))).toBeGreaterThanOrEqual(1);
    expect(await refusalOf(response)).toMatchObject({ status: 503, code: "ledger_unavailable" });
    expect(fetched).not.toHaveBeenCalled();
  });
});
