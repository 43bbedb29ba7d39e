/** What the OpenAI chat dialect admits, and what it says of the rest. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { openaiChat } from "../../src/providers/openai-chat.ts";
import { body, MESSAGES, requestOf } from "../support/chat-request.ts";

function problemOf(text: string) {
  const described = openaiChat.describe(text);
  return described.ok ? null : described.malformed;
}

describe("describe", () => {
  it("reads what admission needs", () => {
    expect(requestOf(body({ stream: true, max_tokens: 12, n: 3 }))).toMatchObject({
      model: "gpt-4o-mini",
      stream: true,
      declaredOutputTokens: 12,
      completions: 3,
    });
  });

  it("TOK-15: the larger of two ceilings counts", () => {
    expect(requestOf(body({ max_tokens: 1, max_completion_tokens: 10_000 })).declaredOutputTokens).toBe(
      10_000,
    );
  });

  it("TOK-17: no ceiling, or null, is no error", () => {
    expect(requestOf(body()).declaredOutputTokens).toBeNull();
    expect(requestOf(body({ max_tokens: null, n: null })).declaredOutputTokens).toBeNull();
  });

  it("admits a finite ceiling however large", () => {
    expect(
      requestOf(`{"model":"m","messages":[{"role":"user"}],"max_tokens":1e300}`).declaredOutputTokens,
    ).toBe(1e300);
  });

  it.each(["max_tokens", "max_completion_tokens"])("refuses a %s that is no positive integer", (name) => {
    for (const value of ["12", 1.5, -1, 0, true, [], {}]) {
      expect(problemOf(body({ [name]: value }))?.param).toBe(name);
    }
    expect(problemOf(body({ [name]: "12" }))?.message).toBe(`${name}: expected a positive integer, got "12"`);
    expect(problemOf(`{"model":"m","messages":[{"role":"user"}],"${name}":1e400}`)?.param).toBe(name);
  });

  it("TOK-18: n multiplies, and an absurd one is refused", () => {
    expect(requestOf(body({ n: 5, max_tokens: 1000 })).completions).toBe(5);
    for (const n of [129, 0, 1.5, "2"]) expect(problemOf(body({ n }))?.param).toBe("n");
  });

  it("CMP-08: stream is true, false or null; anything else is named", () => {
    expect(requestOf(body({ stream: null })).stream).toBe(false);
    expect(requestOf(body({ stream: false })).stream).toBe(false);
    for (const stream of ["true", 1, 0, {}]) {
      expect(problemOf(body({ stream }))).toMatchObject({
        param: "stream",
        message: expect.stringContaining("expected true, false or null"),
      });
    }
  });

  it("SEC-09: a top-level member given twice is refused, also under an escaped name", () => {
    const messages = JSON.stringify(MESSAGES);
    expect(problemOf(`{"model":"cheap","max_tokens":1,"model":"dear","messages":${messages}}`)?.param).toBe(
      "model",
    );
    expect(
      problemOf(`{"model":"m","max_tokens":1,"max\\u005ftokens":8000,"messages":${messages}}`)?.param,
    ).toBe("max_tokens");
  });

  it("TOK-29: bodies that are no chat request are told where they are wrong", () => {
    const cases: readonly (readonly [string, string | null])[] = [
      ["", null],
      ["{", null],
      ["[]", null],
      ["null", null],
      ['"x"', null],
      [JSON.stringify({ messages: MESSAGES }), "model"],
      [body({ model: " " }), "model"],
      [body({ model: 7 }), "model"],
      [JSON.stringify({ model: "m" }), "messages"],
      [body({ messages: "hi" }), "messages"],
      [body({ messages: [] }), "messages"],
      [body({ messages: [null] }), "messages[0]"],
      [body({ messages: [...MESSAGES, { content: "x" }] }), "messages[1].role"],
      [body({ messages: [{ role: "user", content: 7 }] }), "messages[0].content"],
      [body({ messages: [{ role: "user", content: ["x"] }] }), "messages[0].content[0]"],
      [body({ stream_options: true }), "stream_options"],
    ];
    for (const [text, param] of cases) expect([text, problemOf(text)?.param]).toEqual([text, param]);
  });

  it("TOK-29: null, string and part contents are all admitted", () => {
    const messages = [
      { role: "assistant", content: null, tool_calls: [] },
      { role: "user", content: [{ type: "text", text: "a" }] },
      { role: "user" },
    ];
    expect(problemOf(body({ messages }))).toBeNull();
  });

  it("refuses nesting that no schema has, before anything walks it", () => {
    const bomb = `{"model":"m","messages":[{"role":"user"}],"tools":${"[".repeat(1e6)}${"]".repeat(1e6)}}`;
    expect(problemOf(bomb)?.message).toContain("levels of nesting");
  });

  it("never throws, whatever the text", () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string(),
          fc.json(),
          fc.jsonValue().map((value) => body({ messages: value })),
        ),
        (text) => {
          openaiChat.describe(text);
        },
      ),
    );
  });
});
