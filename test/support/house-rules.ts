/** The rules of the house (which way imports point, what the pure folders may not say) as a check over sources. */
import { dirname, join } from "node:path/posix";
import { functionsOf, importsOf, scan } from "./source-text.ts";

/** Path from the project's root to text. */
export type Sources = ReadonlyMap<string, string>;

export const FUNCTION_LINES_MAX = 70;
export const FILE_LINES_MAX = 400;

const PURE = new Set(["ledger", "estimator", "ladder", "policy"]);

/** What a folder may import besides itself; `type:` marks types alone. */
const ARROWS: Readonly<Record<string, readonly string[]>> = {
  worker: [
    "admission-service",
    "outcome-query",
    "gateway",
    "admin",
    "settings",
    "providers",
    "policy",
    "telemetry",
    "instrument",
    "durable-objects",
  ],
  "outcome-query": ["gateway", "policy", "providers", "settings"],
  "admission-service": ["gateway", "policy", "settings"],
  settings: ["policy", "src/gateway/virtual-key.ts"],
  gateway: [
    "settings",
    "providers",
    "ladder",
    "tokens",
    "policy",
    "telemetry",
    "type:ledger",
    "type:durable-objects",
  ],
  admin: [
    "settings",
    "providers",
    "ladder",
    "tokens",
    "policy",
    "telemetry",
    "gateway",
    "type:ledger",
    "type:durable-objects",
  ],
  providers: ["tokens", "type:policy"],
  ladder: [],
  tokens: [],
  policy: [],
  estimator: ["policy"],
  ledger: ["estimator", "policy"],
  telemetry: ["type:ledger", "type:policy"],
  "durable-objects": ["ledger"],
  cli: ["policy", "tokens", "src/gateway/virtual-key.ts"],
};

/** Packages and the platform, by who may name them. Types of the platform are ambient and need no import. */
const PACKAGES: Readonly<Record<string, readonly string[]>> = {
  worker: ["hono"],
  gateway: ["jose", "uuid", "hono", "valibot", "cloudflare:sockets"],
  "admission-service": ["cloudflare:workers"],
  "outcome-query": ["cloudflare:workers"],
  admin: ["jose", "uuid", "hono"],
  policy: ["valibot"],
  "durable-objects": ["cloudflare:workers"],
  cli: ["node:", "esbuild", "workerd", "js-tiktoken"],
};

const IMPURE: readonly (readonly [RegExp, string])[] = [
  [/\bfetch\s*\(/, "fetch"],
  [/\bDate\s*\.\s*now\b|\bnew\s+Date\b|\bDate\s*\(/, "the clock"],
  [/\bMath\s*\.\s*random\b/, "Math.random"],
  [/\bcrypto\b/, "crypto"],
  [/\bperformance\b/, "the clock"],
  [/\bset(Timeout|Interval)\b|\bqueueMicrotask\b/, "a timer"],
  [/\basync\b|\bawait\b|\bPromise\b/, "async"],
];
/** What a ledger may never have heard of. */
const LEDGER_IGNORES =
  /\b(provider|providers|gateway|tokens\/|tokenizer|tiktoken|openai|anthropic|gemini|hono)\b/i;
const ADAPTER = /^src\/providers\/(openai|anthropic|gemini)[a-z-]*\.ts$/;

/** Every breach, in words. */
export function breaches(sources: Sources): string[] {
  const files = [...sources].filter(([path]) => path.endsWith(".ts") && !path.endsWith(".d.ts"));
  return [
    ...files.flatMap(([path, text]) => [
      ...badImports(path, text, sources),
      ...badWords(path, text),
      ...tooLong(path, text),
    ]),
    ...cycles(sources),
  ];
}

/** Files that no entry leads to. */
export function unreached(sources: Sources, entries: readonly string[]): string[] {
  const reached = new Set<string>();
  const open = [...entries];
  for (let path = open.pop(); path !== undefined; path = open.pop()) {
    const text = sources.get(path);
    if (text === undefined || reached.has(path)) continue;
    reached.add(path);
    open.push(...localImports(path, text).map(({ target }) => target));
  }
  return [...sources.keys()].filter((path) => !path.endsWith(".d.ts") && !reached.has(path));
}

function badImports(path: string, text: string, sources: Sources): string[] {
  const found: string[] = [];
  const folder = folderOf(path);
  if (path.endsWith("/index.ts")) found.push(`${path}: no barrel files`);
  if (folder !== null && ARROWS[folder] === undefined)
    found.push(`${path}: the folder ${folder} is not in the plan of the house`);
  for (const { specifier, typesOnly } of importsOf(text)) {
    if (!specifier.startsWith(".")) {
      const allowed = PACKAGES[folder ?? ""] ?? [];
      const named = (name: string) =>
        name.endsWith(":")
          ? specifier.startsWith(name)
          : specifier === name || specifier.startsWith(`${name}/`);
      if (!allowed.some(named)) found.push(`${path}: ${folder} may not import ${specifier}`);
      continue;
    }
    const target = join(dirname(path), specifier);
    // Packed by the build, and not there before it.
    if (/^src\/tokens\/tables\/[a-z0-9_]+\.bin$/.test(target) && folder === "tokens") continue;
    if (!sources.has(target)) {
      found.push(`${path}: ${target} is not a source of the worker`);
      continue;
    }
    if (!mayImport(folder, target, typesOnly)) found.push(`${path}: ${folder} may not import ${target}`);
    if (ADAPTER.test(target) && !ADAPTER.test(path) && path !== "src/providers/registry.ts") {
      found.push(`${path}: only the registry names the adapter ${target}`);
    }
  }
  return found;
}

function mayImport(folder: string | null, target: string, typesOnly: boolean): boolean {
  const to = folderOf(target);
  if (folder === null || to === null) return false;
  const allowed = ARROWS[folder] ?? [];
  return (
    to === folder ||
    allowed.includes(to) ||
    allowed.includes(target) ||
    (typesOnly && allowed.includes(`type:${to}`))
  );
}

function badWords(path: string, text: string): string[] {
  const { code, uncommented } = scan(text);
  const folder = folderOf(path);
  const found: string[] = [];
  if (folder !== null && PURE.has(folder)) {
    for (const [pattern, name] of IMPURE)
      if (pattern.test(code)) found.push(`${path}: pure code uses ${name}`);
  }
  if (folder === "durable-objects") {
    const word = LEDGER_IGNORES.exec(uncommented)?.[0];
    if (word !== undefined) found.push(`${path}: a ledger's shell mentions ${word}`);
  }
  return found;
}

function tooLong(path: string, text: string): string[] {
  const found: string[] = [];
  const lines = text.split("\n").length;
  if (lines > FILE_LINES_MAX) found.push(`${path}: ${lines} lines, more than ${FILE_LINES_MAX}`);
  for (const span of functionsOf(text)) {
    if (span.lines > FUNCTION_LINES_MAX) {
      found.push(`${path}:${span.line}: a function of ${span.lines} lines, more than ${FUNCTION_LINES_MAX}`);
    }
  }
  return found;
}

function cycles(sources: Sources): string[] {
  const found: string[] = [];
  const done = new Set<string>();
  const visit = (path: string, trail: readonly string[]): void => {
    if (trail.includes(path)) {
      found.push(`${[...trail.slice(trail.indexOf(path)), path].join(" -> ")}: a cycle`);
      return;
    }
    const text = sources.get(path);
    if (text === undefined || done.has(path)) return;
    for (const { target } of localImports(path, text)) visit(target, [...trail, path]);
    done.add(path);
  };
  for (const path of sources.keys()) visit(path, []);
  return found;
}

function localImports(path: string, text: string): { target: string }[] {
  const local = importsOf(text).filter(({ specifier }) => specifier.startsWith("."));
  return local.map(({ specifier }) => ({ target: join(dirname(path), specifier) }));
}

function folderOf(path: string): string | null {
  if (path.startsWith("durable-objects/")) return "durable-objects";
  return /^src\/([a-z-]+)(?:\/|\.ts$)/.exec(path)?.[1] ?? null;
}
