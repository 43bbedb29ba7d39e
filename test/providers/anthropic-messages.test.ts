/** The Anthropic dialect: what a request says, how it is edited, and what is said to its caller. */
import { describe, expect, it } from "vitest";
import { anthropicMessages } from "../../src/providers/anthropic-messages.ts";
import type { Described } from "../../src/providers/dialect.ts";
import { targetOf } from "../support/endpoints.ts";
import { messagesBody, messagesRequest } from "../support/messages-request.ts";

const describeAt = (members: object, path = "/v1/messages"): Described =>
  anthropicMessages.describe(messagesBody(members), targetOf(path));

const problemOf = (described: Described) => (described.ok ? null : described.malformed);

describe("describe", () => {
  it("reads model, stream and ceiling", () => {
    expect(messagesRequest({ max_tokens: 2_000, stream: true })).toMatchObject({
      model: "claude-sonnet-4-5",
      stream: true,
      declaredOutputTokens: 2_000,
      completions: 1,
    });
    expect(messagesRequest().declaredOutputTokens).toBeNull();
    expect(messagesRequest({ max_tokens: null }).declaredOutputTokens).toBeNull();
  });

  it.each([
    [{ model: "" }, "model"],
    [{ messages: [] }, "messages"],
    [{ messages: "hi" }, "messages"],
    [{ messages: [7] }, "messages[0]"],
    [{ messages: [{ content: "x" }] }, "messages[0].role"],
    [{ messages: [{ role: "user", content: 7 }] }, "messages[0].content"],
    [{ messages: [{ role: "user", content: ["x"] }] }, "messages[0].content[0]"],
    [{ system: 7 }, "system"],
    [{ stream: "yes" }, "stream"],
    [{ max_tokens: "12" }, "max_tokens"],
    [{ max_tokens: 1.5 }, "max_tokens"],
    [{ max_tokens: -1 }, "max_tokens"],
    [{ Max_Tokens: 9 }, "Max_Tokens"],
    [{ tools: Array.from({ length: 1_025 }, () => ({})) }, "tools"],
  ])("TOK-29 refuses %j by its member", (members, param) => {
    expect(problemOf(describeAt(members))).toMatchObject({ param });
  });

  it("SEC-09 refuses a member that occurs twice, however it is spelt", () => {
    const text = String.raw`{"model":"m","max_tokens":1,"max\u005ftokens":9,"messages":[{"role":"user","content":"x"}]}`;
    expect(problemOf(anthropicMessages.describe(text, targetOf("/v1/messages")))).toMatchObject({
      param: "max_tokens",
    });
  });

  it("takes no query member but the SDK's own, and repeats none of their values", () => {
    expect(describeAt({}, "/v1/messages?beta=true").ok).toBe(true);
    expect(describeAt({}, "/v1/messages?beta=true&beta=true").ok).toBe(false);
    const refused = problemOf(describeAt({}, "/v1/messages?key=SECRET"));
    expect(refused?.message).toContain('"key"');
    expect(refused?.message).not.toContain("SECRET");
  });
});

describe("upstream", () => {
  it("goes to the path that was asked, with the query that may go along", () => {
    expect(anthropicMessages.upstreamPath(messagesRequest())).toBe("/v1/messages");
    expect(anthropicMessages.upstreamPath(messagesRequest({}, "/v1/messages?beta=true"))).toBe(
      "/v1/messages?beta=true",
    );
    expect(anthropicMessages.upstreamPath(messagesRequest({}, "/v1/messages/count_tokens"))).toBe(
      "/v1/messages/count_tokens",
    );
    expect(anthropicMessages.credential("s")).toEqual(["x-api-key", "s"]);
    expect(anthropicMessages.outcomePath("msg_1")).toBeNull();
  });
});

describe("edit", () => {
  const edited = (members: object, injectCeilingAs: string | null = null) => {
    const request = messagesRequest(members);
    const { text, stripUsage } = anthropicMessages.edit(request, {
      maxOutputTokens: 1_000,
      injectCeilingAs,
      includeUsage: true,
    });
    expect(stripUsage).toBe(false);
    return { text, untouched: text === request.text };
  };

  it("TOK-16 lowers max_tokens to the ceiling, and writes the route's under no other name", () => {
    expect(JSON.parse(edited({ max_tokens: 5_000 }).text)).toMatchObject({ max_tokens: 1_000 });
    const injected = edited({}, "max_completion_tokens").text;
    expect(JSON.parse(injected)).toMatchObject({ max_tokens: 1_000 });
    expect(injected).not.toContain("max_completion_tokens");
  });

  it("leaves everything else as it came", () => {
    expect(edited({ max_tokens: 900, stream: true }).untouched).toBe(true);
    expect(edited({}).untouched).toBe(true);
  });
});

describe("the provider's own count", () => {
  const { countEndpoint } = anthropicMessages;

  it("asks with the prompt's members as they were written, and no others", () => {
    const asked = countEndpoint?.request(
      messagesRequest({ max_tokens: 9, stream: true, temperature: 1, system: "é", tools: [] }),
    );
    expect(asked?.path).toBe("/v1/messages/count_tokens");
    expect(JSON.parse(asked?.body ?? "")).toEqual(JSON.parse(messagesBody({ system: "é", tools: [] })));
  });

  it("reads the answer, or says that it cannot", () => {
    expect(countEndpoint?.read('{"input_tokens":14}')).toBe(14);
    for (const text of ["", "{}", '{"input_tokens":-1}', '{"input_tokens":"14"}', "<html>"])
      expect(countEndpoint?.read(text)).toBeNull();
  });
});

describe("errorBody", () => {
  it.each([
    [400, "invalid_request_error"],
    [401, "authentication_error"],
    [403, "permission_error"],
    [404, "not_found_error"],
    [409, "invalid_request_error"],
    [413, "request_too_large"],
    [429, "rate_limit_error"],
    [503, "api_error"],
    [504, "timeout_error"],
  ])("says %i as %s, our own code beside it", (status, type) => {
    const weir = { code: "a_code", requestId: "req_1" };
    const body = anthropicMessages.errorBody({ status, message: "No.", param: null, rate: null, weir });
    expect(body).toEqual({ type: "error", error: { type, message: "No." }, request_id: "req_1", weir });
  });
});
