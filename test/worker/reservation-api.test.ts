import { env, exports } from "cloudflare:workers";
import { beforeEach, describe, expect, it } from "vitest";
import { mintVirtualKey } from "../../src/gateway/virtual-key.ts";
import type { Balance } from "../../src/ledger/view.ts";
import { reserveOf, scope } from "../support/ledger.ts";

const secret = String(env.WEIR_KEY_SECRET);

let tenant = "";
let named = 0;
beforeEach(() => {
  named += 1;
  tenant = `api-${named}`;
});

const keyFor = (keyId = "k1", keyClass: "interactive" | "batch" = "interactive") =>
  mintVirtualKey({
    secret,
    keyId,
    user: null,
    tenant,
    class: keyClass,
    issuedAtMs: Date.now(),
    expiresAtMs: null,
  });

interface Said {
  readonly status: number;
  readonly headers: Headers;
  readonly body: Readonly<Record<string, unknown>> & { readonly id: string };
}

async function ask(
  path: string,
  body?: unknown,
  headers: Record<string, string> = {},
  key?: string,
): Promise<Said> {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  const response = await exports.default.fetch(`https://weir.test/t/${tenant}${path}`, {
    method: body === undefined ? "GET" : "POST",
    headers: { authorization: `Bearer ${key ?? (await keyFor())}`, ...headers },
    ...(body === undefined ? {} : { body: text }),
  });
  return { status: response.status, headers: response.headers, body: await response.json<Said["body"]>() };
}

const SIZE = { model: "gpt-4o-mini", inputTokens: 900, maxOutputTokens: 400 };
const reserve = (more: object = {}, headers: Record<string, string> = {}, key?: string) =>
  ask("/reservations", { ...SIZE, ...more }, headers, key);
const usage = (inputTokens: number, outputTokens: number) => ({ inputTokens, outputTokens });
/** Of each limit, what was settled and what is held: the levels themselves refill meanwhile. */
const levels = async () => {
  const { body } = await ask("/balance");
  return (body as unknown as Balance).limits.map(({ settledTotal, held }) => [settledTotal, held]);
};

/** A lease such as the gateway takes for a call that it makes itself. */
const proxied = (requestId: string, keyId: string) =>
  reserveOf(requestId, 100, 50, { policyHash: "older", policyEpoch: -1, scope: { ...scope, key: keyId } });

describe("a reservation's life", () => {
  it("goes from reserve to settle, each step in the wire's own shape", async () => {
    const reserved = await reserve();
    expect(reserved.status).toBe(201);
    expect(reserved.body).toEqual({
      id: expect.stringMatching(/^[\w-]+$/),
      fence: 1,
      state: "RESERVED",
      heldTokens: 1_300,
      expiresAtMs: expect.any(Number),
      rung: "FULL",
    });
    expect(reserved.headers.get("x-weir-held-tokens")).toBe("1300");
    expect(reserved.headers.get("x-ratelimit-remaining-tokens")).toBe("118700");
    const { id } = reserved.body;
    const step = (verb: string, body: object) => ask(`/reservations/${id}/${verb}`, body);
    const shape = { id, fence: 1, capturedTokens: 0, settledTokens: 0, expiresAtMs: expect.any(Number) };
    expect((await step("dispatch", { fence: 1 })).body).toEqual({
      ...shape,
      state: "DISPATCHED",
      heldTokens: 1_300,
    });
    expect((await step("running", { fence: 1, providerRequestId: "p" })).body).toMatchObject({
      state: "RUNNING",
    });
    expect(
      (await step("capture", { fence: 1, usageEventId: "1", usage: usage(900, 100) })).body,
    ).toMatchObject({ state: "PARTIALLY_SETTLED", capturedTokens: 1_000, heldTokens: 1_300 });
    expect((await step("top-up", { fence: 1, tokens: 200 })).body).toMatchObject({ heldTokens: 1_500 });
    const settled = await step("settle", { fence: 1, usage: usage(912, 131) });
    expect(settled.body).toMatchObject({ state: "SETTLED", heldTokens: 0, settledTokens: 1_043 });
    expect((await step("settle", { fence: 1, usage: usage(912, 131) })).body).toEqual(settled.body);
    const other = await step("settle", { fence: 1, usage: usage(912, 132) });
    expect([other.status, other.body["code"]]).toEqual([409, "already_settled"]);
    expect(other.headers.get("content-type")).toBe("application/problem+json");
    expect((await ask(`/reservations/${id}`)).body).toEqual(settled.body);
    expect((await levels())[0]).toEqual([1_043, 0]);
  });

  it("I6 is given back whole before it is sent, and after that with evidence only", async () => {
    const first = await reserve();
    expect((await ask(`/reservations/${first.body.id}/release`, { fence: 1 })).body).toMatchObject({
      state: "RELEASED",
    });
    const { id } = (await reserve()).body;
    await ask(`/reservations/${id}/dispatch`, { fence: 1 });
    const refused = await ask(`/reservations/${id}/release`, { fence: 1 });
    expect([refused.status, refused.body["code"], refused.body["state"]]).toEqual([
      409,
      "invalid_state",
      "DISPATCHED",
    ]);
    const released = await ask(`/reservations/${id}/release`, { fence: 1, evidence: "provider_refused" });
    expect(released.body).toMatchObject({ state: "RELEASED", heldTokens: 0 });
    expect((await levels())[0]?.[1]).toBe(0);
  });

  it("answers to no other fence, no other key, and no id that it does not know", async () => {
    const { id } = (await reserve()).body;
    const before = await levels();
    expect(await ask(`/reservations/${id}/dispatch`, { fence: 2 })).toMatchObject({
      status: 409,
      body: { code: "stale_fence", state: "RESERVED" },
    });
    const stranger = await keyFor("k2");
    for (const said of [
      await ask(`/reservations/${id}`, undefined, {}, stranger),
      await ask(`/reservations/${id}/release`, { fence: 1 }, {}, stranger),
      await ask("/reservations/nobody/settle", { fence: 1, usage: usage(0, 0) }),
      await ask("/reservations/nobody/release", { fence: 1 }),
    ])
      expect([said.status, said.body["code"]]).toEqual([404, "unknown_reservation"]);
    expect(await levels()).toEqual(before);
  });

  it("a call that weir proxies cannot be settled from outside", async () => {
    const stub = env.TENANT_LEDGER.getByName(`v1:${tenant}`);
    await ask("/balance");
    expect((await stub.run(proxied("proxied-1", "k1"))).type).toBe("reserved");
    const said = await ask("/reservations/proxied-1/settle", { fence: 1, usage: usage(0, 0) });
    expect([said.status, said.body["code"]]).toEqual([404, "unknown_reservation"]);
  });
});

describe("idempotency", () => {
  it("I3 the same key and body is the same reservation, whatever the order of its members", async () => {
    const once = await reserve({}, { "idempotency-key": "job" });
    const again = await ask(
      "/reservations",
      { maxOutputTokens: 400, inputTokens: 900, model: "gpt-4o-mini" },
      { "idempotency-key": "job" },
    );
    expect(again.status).toBe(201);
    expect(again.body).toEqual(once.body);
    expect((await levels())[0]?.[1]).toBe(1_300);
    const other = await reserve({ inputTokens: 901 }, { "idempotency-key": "job" });
    expect([other.status, other.body["code"]]).toEqual([409, "idempotency_conflict"]);
    expect(other.headers.get("x-should-retry")).toBe("false");
    // Another virtual key's word is another word.
    const stranger = await reserve({}, { "idempotency-key": "job" }, await keyFor("k2"));
    expect(stranger.body.id).not.toBe(once.body.id);
  });
});

describe("decide", () => {
  it("tells what would become of a reserve, and changes nothing", async () => {
    const before = await levels();
    expect((await ask("/decide", SIZE)).body).toEqual({
      outcome: "reserved",
      heldTokens: 1_300,
      rung: "FULL",
    });
    const tooLarge = await ask("/decide", { ...SIZE, inputTokens: 119_999 });
    expect(tooLarge.body).toMatchObject({ outcome: "refused", refusal: { code: "request_too_large" } });
    await reserve({ inputTokens: 119_000 });
    const held = await levels();
    expect((await ask("/decide", SIZE)).body).toMatchObject({
      outcome: "refused",
      refusal: { code: "tokens_exhausted" },
    });
    expect(await levels()).toEqual(held);
    expect(before[0]).toEqual([0, 0]);
    const refused = await reserve();
    expect([refused.status, refused.body["code"], refused.body["limit"]]).toEqual([
      429,
      "tokens_exhausted",
      "tenant-tokens",
    ]);
    expect(Number(refused.headers.get("retry-after-ms"))).toBe(refused.body["retryAfterMs"]);
  });
});

describe("bad input gets a clear error, and moves nothing", () => {
  it.each([
    ["negative", { inputTokens: -1 }, "inputTokens"],
    ["fractional", { inputTokens: 0.5 }, "inputTokens"],
    ["huge", { maxOutputTokens: 1e15 }, "maxOutputTokens"],
    ["a string", { inputTokens: "12" }, "inputTokens"],
    ["null", { maxOutputTokens: null }, "maxOutputTokens"],
    ["missing", { model: undefined }, "model"],
    ["unknown", { priority: "high" }, "priority"],
    ["a long label", { digest: "x".repeat(300) }, "digest"],
    ["no class", { class: "gold" }, "class"],
    ["a deadline of nothing", { deadlineMs: 0 }, "deadlineMs"],
  ])("%s", async (_what, more, member) => {
    const said = await reserve(more);
    expect([said.status, said.body["code"]]).toEqual([400, "invalid_request"]);
    expect(said.headers.get("content-type")).toBe("application/problem+json");
    expect(said.body["title"]).toContain(`${member}: expected`);
    expect(said.body["title"]).toContain("received");
    expect((await levels())[0]?.[1]).toBe(0);
  });

  it("names every problem at once", async () => {
    const said = await reserve({ inputTokens: -1, maxOutputTokens: "x", extra: 1 });
    for (const member of ["inputTokens", "maxOutputTokens", "extra"])
      expect(said.body["title"]).toContain(member);
  });

  it.each([
    ["not JSON", "{", 400, "invalid_request"],
    ["a list", "[]", 400, "invalid_request"],
    ["null", "null", 400, "invalid_request"],
    ["NaN", '{"model":"gpt-4o-mini","inputTokens":NaN,"maxOutputTokens":1}', 400, "invalid_request"],
    ["1e400", '{"model":"gpt-4o-mini","inputTokens":1e400,"maxOutputTokens":1}', 400, "invalid_request"],
    ["too much", `{"model":"${"x".repeat(70_000)}"}`, 413, "body_too_large"],
  ])("a body that is %s", async (_what, body, status, code) => {
    const said = await ask("/reservations", body);
    expect([said.status, said.body["code"]]).toEqual([status, code]);
  });

  it.each([
    ["capture", { fence: 1, usage: usage(1, 1) }, "usageEventId"],
    ["capture", { fence: 1, usageEventId: "x".repeat(201), usage: usage(1, 1) }, "usageEventId"],
    ["settle", { fence: 1, usage: usage(1, -1) }, "usage.outputTokens"],
    ["settle", { fence: 0, usage: usage(1, 1) }, "fence"],
    ["settle", { usage: usage(1, 1) }, "fence"],
    ["top-up", { fence: 1, tokens: 0 }, "tokens"],
    ["release", { fence: 1, evidence: "trust me" }, "evidence"],
  ])("%s %j", async (verb, body, member) => {
    const { id } = (await reserve()).body;
    await ask(`/reservations/${id}/dispatch`, { fence: 1 });
    const before = await levels();
    const said = await ask(`/reservations/${id}/${verb}`, body);
    expect([said.status, said.body["code"]]).toEqual([400, "invalid_request"]);
    expect(said.body["title"]).toContain(`${member}: expected`);
    expect((await levels()).map(([, held]) => held)).toEqual(before.map(([, held]) => held));
  });

  it("an id that is too long, a model, a route and a verb that nobody knows, a method that is not served", async () => {
    expect((await ask(`/reservations/${"x".repeat(65)}/dispatch`, { fence: 1 })).status).toBe(400);
    expect((await reserve({ model: "no-such" })).body["code"]).toBe("unknown_model");
    expect((await reserve({ route: "no-such" })).body["code"]).toBe("unknown_route");
    expect((await ask("/reservations/x/forgive", { fence: 1 })).status).toBe(404);
    expect((await ask("/reservations")).status).toBe(405);
    expect((await reserve({ maxOutputTokens: 5_000 })).body).toMatchObject({
      code: "request_too_large",
      status: 400,
    });
  });

  it("who may ask", async () => {
    expect((await reserve({}, {}, "weir_nonsense")).status).toBe(401);
    const key = await keyFor();
    tenant = `${tenant}-other`;
    expect((await reserve({}, {}, key)).status).toBe(403);
  });
});

describe("the service", () => {
  const service = (props: object) => exports.AdmissionService({ props: props as { tenant: string } });

  it("is the same protocol, for the tenant that its props name", async () => {
    const other = service({ tenant, name: "jobs" });
    const reserved = await other.reserve(SIZE);
    if (!reserved.ok) throw new Error(reserved.refusal.message);
    const { id } = reserved.value;
    expect(await other.dispatch(id, { fence: 1 })).toMatchObject({
      ok: true,
      value: { state: "DISPATCHED" },
    });
    expect(await other.settle(id, { fence: 1, usage: usage(900, 10) })).toMatchObject({
      ok: true,
      value: { state: "SETTLED", settledTokens: 910 },
    });
    expect((await levels())[0]).toEqual([910, 0]);
    // Its reservations are its own.
    expect((await ask(`/reservations/${id}`)).status).toBe(404);
    expect(await other.reserve({ ...SIZE, inputTokens: "many" })).toMatchObject({
      ok: false,
      refusal: { code: "invalid_request" },
    });
    expect(await other.decide(SIZE)).toMatchObject({ ok: true, value: { outcome: "reserved" } });
    const balance = await (other.balance() as unknown as Promise<Balance>);
    expect(balance.tenant).toBe(tenant);
  });
});
