import { describe, expect, it } from "vitest";
import { isTenantName, mintVirtualKey, verifyVirtualKey } from "../../src/gateway/virtual-key.ts";

const SECRET = "a secret of thirty-two characters or more";
const ISSUED_AT_MS = Date.UTC(2026, 10, 1);
const DAY_MS = 86_400_000;

const ORDER = {
  secret: SECRET,
  keyId: "key-1",
  tenant: "acme",
  class: "batch",
  user: null,
  issuedAtMs: ISSUED_AT_MS,
  expiresAtMs: ISSUED_AT_MS + DAY_MS,
} as const;

const verify = (key: string, nowMs = ISSUED_AT_MS, secret = SECRET) => verifyVirtualKey(key, secret, nowMs);
const encoded = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url");

describe("a virtual key", () => {
  it("says who holds it until it expires", async () => {
    const key = await mintVirtualKey(ORDER);
    const claims = { keyId: "key-1", tenant: "acme", class: "batch", user: null };
    expect(await verify(key)).toEqual({ ok: true, claims });
    expect(await verify(key, ISSUED_AT_MS + DAY_MS - 1)).toEqual({ ok: true, claims });
    expect(await verify(key, ISSUED_AT_MS + DAY_MS)).toEqual({ ok: false, reason: "expired" });
  });

  it("never expires if no end was ordered", async () => {
    const key = await mintVirtualKey({ ...ORDER, expiresAtMs: null });
    expect(await verify(key, ISSUED_AT_MS + 10_000 * DAY_MS)).toMatchObject({ ok: true });
  });

  it("is no key of a gateway with another secret", async () => {
    const key = await mintVirtualKey(ORDER);
    expect(await verify(key, ISSUED_AT_MS, SECRET.toUpperCase())).toEqual({
      ok: false,
      reason: "bad_signature",
    });
    expect(await verify(key)).toMatchObject({ ok: true });
  });

  it("cannot be changed to another tenant's", async () => {
    const [header, payload, signature] = (await mintVirtualKey(ORDER)).slice("weir_".length).split(".");
    const claims: unknown = JSON.parse(Buffer.from(payload ?? "", "base64url").toString());
    const forged = encoded(Object.assign({}, claims, { sub: "globex" }));
    expect(await verify(`weir_${header}.${forged}.${signature}`)).toEqual({
      ok: false,
      reason: "bad_signature",
    });
  });

  it("cannot choose how it is signed", async () => {
    const [, payload] = (await mintVirtualKey(ORDER)).slice("weir_".length).split(".");
    for (const alg of ["none", "None", "HS512", "RS256"]) {
      const unsigned = `weir_${encoded({ alg })}.${payload}.`;
      expect(await verify(unsigned)).toEqual({ ok: false, reason: "malformed" });
    }
  });

  it("is refused with a verdict, whatever its text", async () => {
    const key = await mintVirtualKey(ORDER);
    const texts = [
      "",
      "weir_",
      "weir_a.b.c",
      "weir_...",
      "weir_\u0000",
      "sk-proj-1234",
      `weir_${"a.".repeat(9)}`,
    ];
    const unprefixed = key.slice("weir_".length);
    for (const text of [
      ...texts,
      unprefixed,
      ` ${key}`,
      `WEIR_${unprefixed}`,
      "x".repeat(100_000),
      `weir_${"x".repeat(100_000)}`,
    ]) {
      expect(await verify(text), text.slice(0, 40)).toEqual({ ok: false, reason: "malformed" });
    }
  });

  it("is refused if its signer ordered a tenant that cannot be", async () => {
    const key = await mintVirtualKey({ ...ORDER, tenant: "../acme" });
    expect(await verify(key)).toEqual({ ok: false, reason: "malformed" });
  });
});

describe("a tenant's name", () => {
  it.each(["a", "acme", "0-team_b", "a".repeat(63)])("may be %s", (name) => {
    expect(isTenantName(name)).toBe(true);
  });

  it.each(["", "*", "Acme", "-a", "_a", "a b", "a/b", "a.b", "é", "a\n", "a".repeat(64)])(
    "may not be %j",
    (name) => {
      expect(isTenantName(name)).toBe(false);
    },
  );
});
