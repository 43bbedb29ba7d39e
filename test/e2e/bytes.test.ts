/** What the provider sent is what the caller gets, byte for byte, whatever the provider's manners. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { soon } from "../support/soon.ts";
import { limitOf, type Stack, startStack, told } from "../support/stack.ts";

let stack: Stack;

beforeAll(async () => {
  stack = await startStack();
});
afterAll(() => stack?.stop());

const CASES = [
  { name: "STR-01 plain", directives: "tokens=30" },
  { name: "STR-10 one byte at a time", directives: "tokens=10&cut=1" },
  { name: "two bytes at a time", directives: "tokens=15&cut=2" },
  { name: "three bytes at a time", directives: "tokens=15&cut=3" },
  {
    name: "STR-10 seven bytes at a time, in characters of up to four",
    directives: "tokens=30&cut=7&unicode=1",
  },
  { name: "STR-10 one byte at a time, in characters of up to four", directives: "tokens=30&cut=1&unicode=1" },
  { name: "characters of up to four bytes", directives: "tokens=60&unicode=1" },
  { name: "STR-15 STR-43 CRLF, ids and pings", directives: "tokens=30&crlf=1" },
  { name: "STR-43 CRLF cut anywhere", directives: "tokens=30&crlf=1&cut=3&unicode=1" },
  { name: "STR-19 no [DONE]", directives: "tokens=30&nodone=1" },
  { name: "STR-02 usage beside choices", directives: "tokens=30&usageInChoices=1" },
  { name: "STR-04 usage in every chunk", directives: "tokens=30&continuousUsage=1" },
  { name: "several choices", directives: "tokens=9", n: 3 },
];

for (const [index, { name, directives, n }] of CASES.entries()) {
  describe(name, () => {
    for (const asks of [true, false]) {
      it(
        asks
          ? "gives a caller who asked for usage every byte"
          : "keeps only the usage chunk from one who did not",
        async () => {
          const tenant = `case-${index}-${asks ? "asks" : "silent"}`;
          const body = {
            model: told(directives),
            stream: true,
            ...(n === undefined ? {} : { n }),
            ...(asks ? { stream_options: { include_usage: true } } : {}),
          };
          const response = await stack.request(body, { tenant });
          const received = Buffer.from(await response.arrayBuffer());
          const id = response.headers.get("x-request-id");
          const sent = await stack.simulatorBytes(id);
          expect(sent.length).toBeGreaterThan(1_000);
          const expected = asks ? sent : withoutUsageChunk(sent);
          expect(received.toString()).toBe(expected.toString());
          expect(received.equals(expected)).toBe(true);
          const stripped = sent.length - received.length;
          expect(stripped > 0).toBe(!asks && !directives.includes("usageInChoices"));

          const { usage } = await stack.simulatorRequest(id);
          const billed = (usage?.promptTokens ?? 0) + (usage?.completionTokens ?? 0);
          await soon(async () => {
            expect(limitOf(await stack.balance(tenant))).toMatchObject({ held: 0, settledTotal: billed });
          });
        },
      );
    }
  });
}

it("gives every byte of a unary answer, whatever the pieces", async () => {
  for (const directives of ["tokens=30", "tokens=30&cut=1&unicode=1", "tokens=30&cut=7"]) {
    const response = await stack.request({ model: told(directives), n: 2 });
    const received = Buffer.from(await response.arrayBuffer());
    expect(received.equals(await stack.simulatorBytes(response.headers.get("x-request-id")))).toBe(true);
  }
});

/** Drops the one event that has usage and no choices, from its first field to its blank line. */
function withoutUsageChunk(sent: Buffer): Buffer {
  const text = sent.toString("latin1");
  return Buffer.from(
    text.replace(/(id: \d+\r\n)?data: \{[^\n]*"choices":\[\],"usage":\{[^\n]*\n\r?\n/, ""),
    "latin1",
  );
}
