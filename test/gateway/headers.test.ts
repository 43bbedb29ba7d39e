import { describe, expect, it } from "vitest";
import {
  type Decision,
  duration,
  returnedHeaders,
  setDecisionHeaders,
  upstreamHeaders,
} from "../../src/gateway/headers.ts";
import { bucket, policyOf, requests } from "../support/ledger.ts";

describe("headers", () => {
  it.each([
    [0, "0ms"],
    [120, "120ms"],
    [1_500, "1.5s"],
    [59_999, "59.999s"],
    [360_000, "6m0s"],
    [3_661_000, "1h1m1s"],
  ])("%d ms is %s, as OpenAI writes it", (ms, text) => {
    expect(duration(ms)).toBe(text);
  });

  it("CMP-03 SEC-07 lets a provider hear nothing of the caller but the protocol", () => {
    const incoming = new Headers({
      authorization: "Bearer weir_secret",
      "x-api-key": "weir_secret",
      cookie: "session=1",
      "cf-connecting-ip": "1.2.3.4",
      "x-forwarded-for": "1.2.3.4",
      "accept-encoding": "gzip, br",
      "x-weir-route": "default",
      "openai-organization": "org",
      "openai-beta": "b",
      "x-stainless-lang": "js",
      "idempotency-key": "k",
      "user-agent": "sdk",
    });
    expect(Object.fromEntries(upstreamHeaders(incoming, ["authorization", "Bearer sk"], "req_1"))).toEqual({
      authorization: "Bearer sk",
      "accept-encoding": "identity",
      "content-type": "application/json",
      "idempotency-key": "k",
      "openai-beta": "b",
      "user-agent": "sdk",
      "x-client-request-id": "req_1",
      "x-stainless-lang": "js",
    });
  });

  it("CMP-02 returns the provider's headers less those of its connection, its limits under its own name", () => {
    const upstream = new Headers({
      "content-encoding": "br",
      "content-length": "650",
      "content-type": "application/json",
      "set-cookie": "a=b",
      "x-request-id": "req_p",
      "x-ratelimit-remaining-tokens": "7",
      "retry-after": "3",
      "x-weir-held-tokens": "forged",
      "www-authenticate": 'Bearer realm="sk-provider"',
    });
    expect(Object.fromEntries(returnedHeaders(upstream, "sk-provider"))).toEqual({
      "content-type": "application/json",
      "retry-after": "3",
      "x-provider-ratelimit-remaining-tokens": "7",
      "x-request-id": "req_p",
    });
  });

  const decision = (): Decision => ({
    atMs: Date.UTC(2026, 0, 1),
    requestId: "req_1",
    policy: policyOf([bucket(1_000, 600), bucket(500, 60, { name: "small" }), requests(10)]),
    policyHash: "p1",
    rung: "FULL",
    heldTokens: 12,
    waitedMs: 0,
    standings: [
      { limit: "tenant-tokens", level: 900 },
      { limit: "small", level: -8_500 },
      { limit: "tenant-requests", level: 9.5 },
    ],
  });

  it("LIM-19 shows the tightest bucket of a unit, and never a negative remainder", () => {
    const headers = new Headers();
    setDecisionHeaders(headers, decision(), "x-ratelimit");
    expect(headers.get("x-ratelimit-limit-tokens")).toBe("500");
    expect(headers.get("x-ratelimit-remaining-tokens")).toBe("0");
    expect(headers.get("x-ratelimit-reset-tokens")).toBe("2h30m0s");
    expect(headers.get("x-ratelimit-remaining-requests")).toBe("9");
    expect(headers.get("x-weir-held-tokens")).toBe("12");
  });

  it("tells an Anthropic caller the same in Anthropic's words, with instants for resets", () => {
    const headers = new Headers();
    setDecisionHeaders(headers, decision(), "anthropic-ratelimit");
    expect(headers.get("anthropic-ratelimit-tokens-limit")).toBe("500");
    expect(headers.get("anthropic-ratelimit-tokens-remaining")).toBe("0");
    expect(headers.get("anthropic-ratelimit-tokens-reset")).toBe("2026-01-01T02:30:00.000Z");
    expect(headers.get("anthropic-ratelimit-requests-remaining")).toBe("9");
    expect(headers.get("x-ratelimit-limit-tokens")).toBeNull();
  });

  it("gives a provider's anthropic-ratelimit-* back under a name that says whose they are", () => {
    const upstream = new Headers({
      "anthropic-ratelimit-input-tokens-remaining": "7",
      "anthropic-ratelimit-requests-reset": "2026-01-01T00:00:00Z",
    });
    expect(Object.fromEntries(returnedHeaders(upstream, "sk-provider"))).toEqual({
      "x-provider-ratelimit-remaining-input-tokens": "7",
      "x-provider-ratelimit-reset-requests": "2026-01-01T00:00:00Z",
    });
  });

  it("SEC-07 CMP-03 forwards Anthropic's version and beta headers, and no credential but one", () => {
    const incoming = new Headers({
      "anthropic-version": "2023-06-01",
      "anthropic-beta": "x",
      "x-api-key": "gw-tenant",
      "x-goog-api-key": "gw-tenant",
      authorization: "Bearer gw-tenant",
      cookie: "session=1",
      "anthropic-dangerous-direct-browser-access": "true",
    });
    const sent = Object.fromEntries(upstreamHeaders(incoming, ["x-api-key", "sk-provider"], "req_1"));
    expect(sent).toEqual({
      "accept-encoding": "identity",
      "anthropic-beta": "x",
      "anthropic-version": "2023-06-01",
      "content-type": "application/json",
      "x-api-key": "sk-provider",
      "x-client-request-id": "req_1",
    });
  });
});
