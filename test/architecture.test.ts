import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import packageJson from "../package.json" with { type: "json" };
import { breaches, FILE_LINES_MAX, FUNCTION_LINES_MAX, unreached } from "./support/house-rules.ts";
import { functionsOf, importsOf, scan } from "./support/source-text.ts";

const cwd = join(import.meta.dirname, "..");
const paths = globSync(["src/**/*.ts", "durable-objects/**/*.ts"], { cwd });
const house = new Map(paths.map((path) => [path, readFileSync(`${cwd}/${path}`, "utf8")]));

describe("the house", () => {
  it("keeps its rules", () => {
    expect(house.size).toBeGreaterThan(30);
    expect(breaches(house)).toEqual([]);
  });

  it("PLA-11 PLA-15 the ledger's shell never locks, and nothing that counts or decides looks at a clock", () => {
    for (const [path, text] of house) {
      const { code } = scan(text);
      if (path.startsWith("durable-objects/")) expect(code, path).not.toContain("blockConcurrencyWhile");
      if (path.startsWith("src/tokens/")) expect(code, path).not.toMatch(/\bDate\b|\bperformance\b/);
    }
  });

  it("has no file that nothing leads to", () => {
    const commands = Object.values(packageJson.scripts).flatMap(
      (script) => script.match(/src\/cli\/[a-z-]+\.ts/g) ?? [],
    );
    expect(unreached(house, ["src/worker.ts", ...commands])).toEqual([]);
  });
});

/** A house of one wrong file and, if need be, what it imports. */
const wrong = (path: string, text: string, ...others: string[]) =>
  breaches(new Map([[path, text], ...others.map((other) => [other, ""] as const)]));

describe("the check", () => {
  it.each([
    ["src/ledger/a.ts", `import { x } from "../gateway/b.ts";`, "src/gateway/b.ts"],
    ["src/ledger/a.ts", `import type { X } from "../gateway/b.ts";`, "src/gateway/b.ts"],
    ["src/gateway/a.ts", `import { x } from "../ledger/b.ts";`, "src/ledger/b.ts"],
    ["src/gateway/a.ts", `import { type X, y } from "../ledger/b.ts";`, "src/ledger/b.ts"],
    ["src/gateway/a.ts", `export { x } from "../ledger/b.ts";`, "src/ledger/b.ts"],
    ["src/gateway/a.ts", `export * from "../ledger/b.ts";`, "src/ledger/b.ts"],
    ["src/gateway/a.ts", `const b = await import("../ledger/b.ts");`, "src/ledger/b.ts"],
    ["src/gateway/a.ts", `import {\n  x,\n} from "../../durable-objects/b.ts";`, "durable-objects/b.ts"],
    ["src/providers/a.ts", `import "../gateway/b.ts";`, "src/gateway/b.ts"],
    ["durable-objects/a.ts", `import { x } from "../src/tokens/b.ts";`, "src/tokens/b.ts"],
    ["src/cli/a.ts", `import { x } from "../gateway/handle.ts";`, "src/gateway/handle.ts"],
    ["src/gateway/a.ts", `import { x } from "../providers/openai-chat.ts";`, "src/providers/openai-chat.ts"],
  ])("finds a forbidden arrow: %s: %s", (path, text, target) => {
    expect(wrong(path, text, target)).not.toEqual([]);
  });

  it.each([
    ["src/gateway/a.ts", `import type { X } from "../ledger/b.ts";`, "src/ledger/b.ts"],
    ["src/gateway/a.ts", `import { type X, type Y } from "../ledger/b.ts";`, "src/ledger/b.ts"],
    ["src/gateway/a.ts", `// import { x } from "../ledger/b.ts";\n/* fetch() */`, "src/ledger/b.ts"],
    ["src/ledger/a.ts", `import { x } from "../policy/b.ts";`, "src/policy/b.ts"],
    ["src/ledger/a.ts", "const text = `a clock: ${x.map((y) => `${y}`)} fetch(now)`; // Date.now()"],
    ["src/ledger/a.ts", `const word = /fetch\\(["'\`]/; const next = "async";`],
  ])("leaves an allowed one: %s: %s", (path, text, ...others) => {
    expect(wrong(path, text, ...others)).toEqual([]);
  });

  it.each([
    "const now = Date.now();",
    "const now = new Date();",
    "const id = crypto.randomUUID();",
    "const luck = Math.random();",
    "const answer = fetch(url);",
    "setTimeout(tick, 5);",
    "export async function a() {}",
    "const text = `${Date.now()}`;",
    `import { Hono } from "hono";`,
    `import { env } from "cloudflare:workers";`,
  ])("finds impurity in the core: %s", (text) => {
    expect(wrong("src/ledger/a.ts", text)).not.toEqual([]);
    expect(wrong("src/policy/a.ts", text)).not.toEqual([]);
  });

  it("finds a cycle, a barrel, a stranger and a provider's name in a ledger's shell", () => {
    const ring = new Map([
      ["src/ledger/a.ts", `import { b } from "./b.ts";`],
      ["src/ledger/b.ts", `import type { C } from "./c.ts";`],
      ["src/ledger/c.ts", `import { a } from "./a.ts";`],
    ]);
    expect(breaches(ring)).toEqual([
      "src/ledger/a.ts -> src/ledger/b.ts -> src/ledger/c.ts -> src/ledger/a.ts: a cycle",
    ]);
    expect(wrong("src/ledger/index.ts", "")).toHaveLength(1);
    expect(wrong("src/utilities/a.ts", "")).toHaveLength(1);
    expect(wrong("src/gateway/a.ts", `import { x } from "../../test/b.ts";`)).toHaveLength(1);
    expect(wrong("durable-objects/a.ts", `const kind = "openai";`)).toHaveLength(1);
  });

  it("finds what is too long", () => {
    const body = "  step();\n".repeat(FUNCTION_LINES_MAX - 2);
    expect(wrong("src/gateway/a.ts", `function f(): void {\n${body}}\n`)).toEqual([]);
    expect(wrong("src/gateway/a.ts", `function f(): void {\n${body}\n}\n`)).toHaveLength(1);
    expect(
      wrong("src/gateway/a.ts", `const f = async ({ a }: A): Promise<B> => {\n${body}\n};\n`),
    ).toHaveLength(1);
    expect(
      wrong("src/gateway/a.ts", `class C {\n  f({ a }: A): { b: B } | null {\n${body}\n  }\n}\n`),
    ).not.toEqual([]);
    expect(wrong("src/gateway/a.ts", `class C {\n${body}\n}\n`)).toEqual([]);
    expect(wrong("src/gateway/a.ts", "step();\n".repeat(FILE_LINES_MAX))).toHaveLength(1);
  });

  it("finds a dead file", () => {
    const sources = new Map([
      ["src/worker.ts", `import { a } from "./gateway/a.ts";`],
      ["src/gateway/a.ts", ""],
      ["src/gateway/b.ts", `import { a } from "./a.ts";`],
    ]);
    expect(unreached(sources, ["src/worker.ts"])).toEqual(["src/gateway/b.ts"]);
  });

  it("reads sources as they are", () => {
    expect(scan(`a = "//"; // b\nc = /["/]/.test(d) / 2;`).code).toBe(
      `a = "  ";     \nc =       .test(d) / 2;`,
    );
    expect(importsOf(`import a, { type B } from "c";\nimport type D from "e";`)).toEqual([
      { specifier: "c", typesOnly: false },
      { specifier: "e", typesOnly: true },
    ]);
    expect(functionsOf("if (a) {\n}\nconst b = {};\nfunction c() {\n}")).toEqual([{ line: 4, lines: 2 }]);
  });
});
