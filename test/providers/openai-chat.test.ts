/** What is sent to an OpenAI server, and what is told to its callers. */
import { describe, expect, it } from "vitest";
import type { BodyEdits, WireError } from "../../src/providers/dialect.ts";
import { openaiChat } from "../../src/providers/openai-chat.ts";
import { body, requestOf } from "../support/chat-request.ts";

describe("edit", () => {
  const edits: BodyEdits = {
    maxOutputTokens: 100,
    injectCeilingAs: "max_completion_tokens",
    includeUsage: true,
  };
  const edit = (text: string, changes: Partial<BodyEdits> = {}) =>
    openaiChat.edit(requestOf(text), { ...edits, ...changes });

  it("CMP-05: leaves the very same text when nothing must change", () => {
    const text = `{"seed":9007199254740993,"temperature":1.0,"metadata":{"a":"\\u00e9"},"new_field":{"x":1},"model":"m","messages":[{"role":"user"}],"max_tokens":100} `;
    expect(edit(text)).toEqual({ text, stripUsage: false });
  });

  it("CMP-05: replaces a ceiling in place and keeps every other byte", () => {
    const text = `{"seed":9007199254740993, "max_tokens" : 9e3 ,"temperature":1.0,"x":"max_tokens\\u00e9","model":"m","messages":[{"role":"user"}]} `;
    expect(edit(text).text).toBe(text.replace(": 9e3 ", ": 100 "));
  });

  it("caps each ceiling that is above, and only those", () => {
    const text = body({ max_tokens: 5, max_completion_tokens: 5000 });
    expect(JSON.parse(edit(text).text)).toMatchObject({ max_tokens: 5, max_completion_tokens: 100 });
  });

  it("writes a ceiling where none was declared, over a null of the same name", () => {
    expect(edit(body()).text).toBe(body().replace(/}$/, ',"max_completion_tokens":100}'));
    expect(edit(body({ max_completion_tokens: null })).text).toBe(body({ max_completion_tokens: 100 }));
    expect(edit(body(), { injectCeilingAs: null }).text).toBe(body());
  });

  it("writes max_tokens beside another ceiling for a server that heeds max_tokens alone", () => {
    const heedsMaxTokens = { injectCeilingAs: "max_tokens" };
    expect(edit(body({ max_completion_tokens: 1 }), heedsMaxTokens).text).toBe(
      body({ max_completion_tokens: 1, max_tokens: 1 }),
    );
    expect(edit(body({ max_completion_tokens: 5000 }), heedsMaxTokens).text).toBe(
      body({ max_completion_tokens: 100, max_tokens: 100 }),
    );
    expect(edit(body({ max_tokens: null, max_completion_tokens: 7 }), heedsMaxTokens).text).toBe(
      body({ max_tokens: 7, max_completion_tokens: 7 }),
    );
    expect(edit(body({ max_tokens: 3, max_completion_tokens: 7 }), heedsMaxTokens).text).toBe(
      body({ max_tokens: 3, max_completion_tokens: 7 }),
    );
    const stream = body({ stream: true, max_completion_tokens: 5000 });
    expect(JSON.parse(edit(stream, heedsMaxTokens).text)).toMatchObject({
      max_completion_tokens: 100,
      max_tokens: 100,
      stream_options: { include_usage: true },
    });
  });

  it("never sends OpenAI both ceilings, which it rejects, where the caller sent one", () => {
    expect(edit(body({ max_tokens: 7 })).text).toBe(body({ max_tokens: 7 }));
    expect(edit(body({ max_tokens: 700 })).text).toBe(body({ max_tokens: 100 }));
    expect(edit(body({ max_completion_tokens: 700 })).text).toBe(body({ max_completion_tokens: 100 }));
    expect(edit(body({ max_completion_tokens: 7 }), { injectCeilingAs: null }).text).toBe(
      body({ max_completion_tokens: 7 }),
    );
  });

  it("asks for usage on a stream, and says when the chunk is not the caller's", () => {
    const stream = (streamOptions?: unknown) =>
      body({ max_tokens: 1, stream: true, stream_options: streamOptions });
    expect(edit(stream())).toEqual({ text: stream({ include_usage: true }), stripUsage: true });
    expect(edit(stream(null))).toEqual({ text: stream({ include_usage: true }), stripUsage: true });
    expect(edit(stream({}))).toEqual({ text: stream({ include_usage: true }), stripUsage: true });
    expect(edit(stream({ include_usage: false, a: 1.0 }))).toEqual({
      text: stream({ include_usage: true, a: 1 }),
      stripUsage: true,
    });
    expect(edit(stream({ a: 1 }))).toEqual({ text: stream({ a: 1, include_usage: true }), stripUsage: true });
    expect(edit(stream({ include_usage: true }))).toEqual({
      text: stream({ include_usage: true }),
      stripUsage: false,
    });
    expect(edit(stream(), { includeUsage: false })).toEqual({ text: stream(), stripUsage: false });
    expect(edit(body({ max_tokens: 1 }))).toEqual({ text: body({ max_tokens: 1 }), stripUsage: false });
  });

  it("overrides an include_usage given twice, whichever a provider would read", () => {
    const text = `{"model":"m","messages":[{"role":"user"}],"max_tokens":1,"stream":true,"stream_options":{"include_usage":true,"include_usage":false}}`;
    expect(edit(text).text).toContain('{"include_usage":true,"include_usage":true}');
  });

  it("makes both insertions at once", () => {
    expect(JSON.parse(edit(body({ stream: true })).text)).toEqual({
      ...JSON.parse(body({ stream: true })),
      max_completion_tokens: 100,
      stream_options: { include_usage: true },
    });
  });
});

describe("errorBody", () => {
  const kindOf = (status: number, code: string, rate: WireError["rate"] = null) => {
    const wire: WireError = { status, message: "no", param: null, rate, weir: { code } };
    const { error, weir } = openaiChat.errorBody(wire) as {
      error: { type: string; code: string | null };
      weir: unknown;
    };
    expect(weir).toEqual({ code });
    return [error.type, error.code];
  };

  it("is OpenAI's shape with our own code beside it", () => {
    const weir = { code: "invalid_request", requestId: "r1" };
    const message = "n: expected an integer";
    expect(openaiChat.errorBody({ status: 400, message, param: "n", rate: null, weir })).toEqual({
      error: { message, type: "invalid_request_error", code: null, param: "n" },
      weir,
    });
  });

  it("uses the types and codes that SDKs tell apart", () => {
    expect(kindOf(401, "unauthenticated")).toEqual(["invalid_request_error", "invalid_api_key"]);
    expect(kindOf(403, "forbidden")).toEqual(["invalid_request_error", "insufficient_permissions"]);
    expect(kindOf(404, "unknown_model")).toEqual(["invalid_request_error", "model_not_found"]);
    expect(kindOf(404, "unknown_route")).toEqual(["invalid_request_error", null]);
    expect(kindOf(400, "CONTEXT_BUDGET_EXCEEDED")).toEqual([
      "invalid_request_error",
      "context_length_exceeded",
    ]);
    expect(kindOf(400, "request_too_large")).toEqual(["invalid_request_error", "context_length_exceeded"]);
    expect(kindOf(429, "tokens_exhausted", "tokens")).toEqual(["tokens", "rate_limit_exceeded"]);
    expect(kindOf(429, "requests_exhausted", "requests")).toEqual(["requests", "rate_limit_exceeded"]);
    expect(kindOf(429, "spend_exhausted", "tokens")).toEqual(["insufficient_quota", "insufficient_quota"]);
    expect(kindOf(409, "idempotency_conflict")).toEqual(["conflict", null]);
    expect(kindOf(503, "queue_full")).toEqual(["server_error", null]);
  });
});

describe("upstream", () => {
  it("is asked on its own path with a bearer secret", () => {
    expect(openaiChat.upstreamPath(requestOf(body()))).toBe("/chat/completions");
    expect(openaiChat.credential("s")).toEqual(["authorization", "Bearer s"]);
  });
});
