/**
 * Puts one bug at a time into a copy of the tree and demands that the tests go red: `npm run mutants [-- WORDS]`,
 * with words only the mutants whose file or name holds them. The tree itself is left alone.
 */
import { spawn } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Mutant, mutants } from "./mutants.ts";

const ROOT = join(import.meta.dirname, "../..");
const COPIED = [
  "src",
  "durable-objects",
  "test",
  "package.json",
  "tsconfig.json",
  "vitest.config.ts",
  "wrangler.toml",
];
const AT_ONCE = 2;
const RUN_MAX_MS = 120_000;

/** The core's tests that take longer than the rest together: only asked about what the rest has not noticed. */
const SLOW = ["calendar", "overload", "snapshot", "sweep"].map((name) => `test/ledger/${name}.test.ts`);
const QUICK = readdirSync(join(ROOT, "test/ledger"))
  .map((name) => `test/ledger/${name}`)
  .filter((path) => path.endsWith(".test.ts") && !SLOW.includes(path));

const core = (...files: readonly string[]) => ["--project", "core", "--no-isolate", ...files];
const object = (...names: readonly string[]) => [
  "--project",
  "worker",
  ...names.map((name) => `test/durable-objects/${name}.test.ts`),
];

/** What must notice, in the order in which it is asked: where the bug is tells who. */
const TESTS = {
  core: [core(...QUICK), core(...SLOW, "test/seed-figures.test.ts")],
  object: [object("tenant-ledger"), object("commit", "queue")],
  store: [object("store", "upgrade"), object("tenant-ledger")],
} as const;
type Suite = keyof typeof TESTS;

function suiteOf({ file }: Mutant): Suite {
  if (!file.startsWith("durable-objects/")) return "core";
  return file.endsWith("/ledger-store.ts") ? "store" : "object";
}

interface Verdict {
  /** Broken: the tests came to no verdict, which is not enough. */
  readonly outcome: "red" | "green" | "broken";
  /** The first test that failed, or what was wrong. */
  readonly by: string;
  readonly seconds: number;
}

function copyTree(into: string): void {
  for (const name of COPIED) cpSync(join(ROOT, name), join(into, name), { recursive: true });
  // A folder of links and not a link: what the runner caches there stays in the copy.
  mkdirSync(join(into, "node_modules"));
  for (const name of readdirSync(join(ROOT, "node_modules")))
    if (!name.startsWith("."))
      symlinkSync(join(ROOT, "node_modules", name), join(into, "node_modules", name));
}

/** The file with its bug; throws unless the place is found exactly once. */
function mutated({ name, file, find, replace }: Mutant, text: string): string {
  const places = text.split(find).length - 1;
  if (places !== 1) throw new Error(`"${name}": its place is found ${places} times in ${file}`);
  return text.replace(find, () => replace);
}

interface Report {
  readonly numFailedTests: number;
  readonly numPassedTests: number;
  readonly testResults: readonly {
    readonly message: string;
    readonly assertionResults: readonly { readonly status: string; readonly fullName: string }[];
  }[];
}

/** Null when the run came to no report. */
function runTests(tree: string, tests: readonly string[]): Promise<Report | null> {
  const output = join(tree, "report.json");
  rmSync(output, { force: true });
  const args = [
    join(ROOT, "node_modules/vitest/vitest.mjs"),
    "run",
    "--bail=1",
    "--maxWorkers=1",
    "--reporter=json",
    `--outputFile=${output}`,
    ...tests,
  ];
  const child = spawn(process.execPath, args, { cwd: tree, stdio: "ignore" });
  const timer = setTimeout(() => child.kill("SIGKILL"), RUN_MAX_MS);
  return new Promise((resolve) => {
    child.on("close", () => {
      clearTimeout(timer);
      resolve(existsSync(output) ? (JSON.parse(readFileSync(output, "utf8")) as Report) : null);
    });
  });
}

/** A tree that does not load proves nothing: some test must have run and failed. */
async function judge(tree: string, suite: Suite): Promise<Verdict> {
  const startedAtMs = performance.now();
  let passed = 0;
  let verdict = { outcome: "green", by: "" } as Pick<Verdict, "outcome" | "by">;
  for (const tests of TESTS[suite]) {
    const report = await runTests(tree, tests);
    const failed = report?.testResults
      .flatMap(({ assertionResults }) => assertionResults)
      .find(({ status }) => status === "failed");
    const broken = report?.testResults.find(({ message }) => message !== "");
    passed += report?.numPassedTests ?? 0;
    if (report === null) verdict = { outcome: "broken", by: "no report in time" };
    else if (failed !== undefined) verdict = { outcome: "red", by: failed.fullName };
    else if (broken !== undefined) verdict = { outcome: "broken", by: broken.message.split("\n")[0] ?? "" };
    else verdict = { outcome: "green", by: `${passed} tests passed` };
    if (verdict.outcome !== "green") break;
  }
  return { ...verdict, seconds: (performance.now() - startedAtMs) / 1_000 };
}

async function judgeMutant(tree: string, mutant: Mutant): Promise<Verdict> {
  const path = join(tree, mutant.file);
  const text = readFileSync(path, "utf8");
  writeFileSync(path, mutated(mutant, text));
  try {
    return await judge(tree, suiteOf(mutant));
  } finally {
    writeFileSync(path, text);
  }
}

/** Each tree takes the next from the list, until there is none. */
async function judgeAll(trees: readonly string[], chosen: readonly Mutant[]): Promise<Map<Mutant, Verdict>> {
  const verdicts = new Map<Mutant, Verdict>();
  // Those that take longest first.
  const left = chosen.toSorted((a, b) => suiteOf(b).localeCompare(suiteOf(a)));
  const work = async (tree: string): Promise<void> => {
    for (let mutant = left.shift(); mutant !== undefined; mutant = left.shift()) {
      const verdict = await judgeMutant(tree, mutant);
      verdicts.set(mutant, verdict);
      const word = verdict.outcome === "red" ? "killed  " : "SURVIVED";
      console.log(`${word} ${verdict.seconds.toFixed(1).padStart(5)} s  ${mutant.name}  <-  ${verdict.by}`);
    }
  };
  await Promise.all(trees.map(work));
  return verdicts;
}

async function main(words: readonly string[]): Promise<number> {
  const chosen = mutants.filter(({ name, file }) => words.every((word) => `${file}: ${name}`.includes(word)));
  for (const mutant of chosen) mutated(mutant, readFileSync(join(ROOT, mutant.file), "utf8"));
  const home = mkdtempSync(join(tmpdir(), "weir-mutants-"));
  try {
    const trees = Array.from({ length: AT_ONCE }, (_, i) => join(home, String(i)));
    for (const tree of trees) {
      mkdirSync(tree);
      copyTree(tree);
    }
    // Without a bug the tests must be green, or red means nothing.
    for (const suite of new Set(chosen.map(suiteOf))) {
      const { outcome, by } = await judge(trees[0] ?? home, suite);
      if (outcome === "green") continue;
      console.error(`the tests of the ${suite} are not green without a bug: ${by}`);
      return 1;
    }
    const verdicts = await judgeAll(trees, chosen);
    const killed = [...verdicts.values()].filter(({ outcome }) => outcome === "red").length;
    for (const [{ name, file }, verdict] of verdicts)
      if (verdict.outcome !== "red") console.log(`survived: ${name} (${file}): ${verdict.by}`);
    console.log(`${killed} of ${chosen.length} killed`);
    return killed === chosen.length ? 0 : 1;
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
}

process.exitCode = await main(process.argv.slice(2));
