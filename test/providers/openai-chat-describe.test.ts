/** What the OpenAI chat dialect admits, and what it says of the rest. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { openaiChat } from "../../src/providers/openai-chat.ts";
import { body, MESSAGES, requestOf } from "../support/chat-request.ts";
import { CHAT_PATH, targetOf } from "../support/endpoints.ts";

/** One seed, so that a failure comes again. */
fc.configureGlobal({ seed: 20_260_101 });

/** The largest body the gateway reads, filled with one thing. */
function full(head: string, filling: string, tail: string): string {
  return head + filling.repeat((2 ** 24 - head.length - tail.length) / filling.length) + tail;
}

function problemOf(text: string) {
  const described = openaiChat.describe(text, targetOf(CHAT_PATH));
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
    expect(problemOf(`{"model":"m","messages":[{"role":"user"}],"${name}":1e400}`)).toEqual({
      param: name,
      message: `${name}: expected a positive integer, got a number too large`,
    });
  });

  it("TOK-18: n multiplies, and an absurd one is refused", () => {
    expect(requestOf(body({ n: 5, max_tokens: 1000 })).completions).toBe(5);
    for (const n of [129, 0, 1.5, "2"]) expect(problemOf(body({ n }))?.param).toBe("n");
  });

  it("best_of multiplies as n does, the larger of the two", () => {
    expect(requestOf(body({ best_of: 7 })).completions).toBe(7);
    expect(requestOf(body({ n: 2, best_of: 7 })).completions).toBe(7);
    expect(requestOf(body({ n: 7, best_of: null })).completions).toBe(7);
    for (const value of [129, 0, 1.5, "2"]) {
      expect(problemOf(body({ best_of: value }))?.param).toBe("best_of");
    }
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

  it.each([
    ["Model", "model"],
    ["Messages", "messages"],
    ["Stream", "stream"],
    ["Stream_Options", "stream_options"],
    ["N", "n"],
    ["Best_Of", "best_of"],
    ["Max_Tokens", "max_tokens"],
    ["MAX_completion_tokens", "max_completion_tokens"],
    ["Tools", "tools"],
    ["Functions", "functions"],
    ["Tool_Choice", "tool_choice"],
    ["Response_Format", "response_format"],
    ["Prediction", "prediction"],
    // Go also takes the long s and the Kelvin sign for their letters.
    ["me\u017fsages", "messages"],
    ["max_to\u212aens", "max_tokens"],
  ])("SEC-09: refuses %s, which some servers read as %s", (found, expected) => {
    for (const text of [body({ [found]: 1 }), `{"${found}":1,${body().slice(1)}`]) {
      expect(problemOf(text)).toEqual({
        param: found,
        message: `${found}: expected this member spelt ${expected}`,
      });
    }
  });

  it("SEC-09: refuses another spelling of include_usage", () => {
    expect(problemOf(body({ stream_options: { Include_Usage: true } }))?.param).toBe(
      "stream_options.Include_Usage",
    );
    expect(problemOf(body({ Temperature: 1, stream_options: { include_usage: true, Other: 1 } }))).toBeNull();
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

  it("SEC-13: a body with too many values or members is refused before it is parsed", () => {
    const head = '{"model":"m","messages":[{"role":"user"}],"x":';
    const cases: readonly (readonly [string, RegExp])[] = [
      [full(`${head}[1`, ",1", "]}"), /^body: expected at most 100000 values, got 83\d{5}$/],
      [full(`${head}[{}`, ",{}", "]}"), /^body: expected at most 100000 values, got \d{8}$/],
      [full(`${head}1`, ',"a":1', "}"), /^body: expected at most 100000 values, got \d{7}$/],
      [full(head, "[", "}"), /^body: expected at most 500 levels of nesting, got 16\d{6}$/],
      [full("", "[", ""), /^body: expected a JSON object/],
      [full("{", "[,", ""), /^body: expected at most 500 levels of nesting/],
    ];
    for (const [text, message] of cases) {
      const cpu = process.cpuUsage();
      const problem = problemOf(text);
      expect(process.cpuUsage(cpu).user / 1000).toBeLessThan(500);
      expect(problem).toEqual({ param: null, message: expect.stringMatching(message) });
    }
    const wide = Object.fromEntries(Array.from({ length: 1000 }, (_, i) => [`x${i}`, i]));
    expect(problemOf(body(wide))).toEqual({
      param: null,
      message: "body: expected at most 1000 top-level members, got 1002",
    });
  });

  it("SEC-13: brackets and commas inside strings are text, however many", () => {
    const content = "[{,".repeat(1_000_000);
    expect(problemOf(body({ messages: [{ role: "user", content }] }))).toBeNull();
    expect(problemOf(body({ x: Array.from({ length: 90_000 }, () => 1) }))).toBeNull();
  });

  it("SEC-13: refuses more tools or messages than any conversation has", () => {
    const tools = Array.from({ length: 1025 }, () => ({}));
    expect(problemOf(body({ tools }))).toEqual({
      param: "tools",
      message: "tools: expected at most 1024, got 1025",
    });
    expect(problemOf(body({ functions: tools }))?.param).toBe("functions");
    expect(problemOf(body({ tools: tools.slice(1) }))).toBeNull();
    const messages = Array.from({ length: 20_001 }, () => ({ role: "user" }));
    expect(problemOf(body({ messages }))?.param).toBe("messages");
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
          openaiChat.describe(text, targetOf(CHAT_PATH));
        },
      ),
    );
  });
});
