/**
 * What the platform calls start-up: evaluating the worker's modules, before any request. It allows a
 * second of CPU. Here the deployed bundle is started on plain workerd, beside a worker that is empty,
 * and the difference in the process's CPU time is the bundle's own; `npm run bench -- startup` prints it.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { cpus, tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { readCompatibility } from "../../src/cli/compatibility.ts";
import { WORKERD, workerdConfig } from "../../src/cli/workerd.ts";

const ROOT = join(import.meta.dirname, "../..");
const EMPTY = "export default { fetch() { return new Response(); } };\nexport class TenantLedger {}\n";

export interface Startup {
  readonly bundleBytes: number;
  /** The medians over the rounds. */
  readonly emptyCpuMs: number;
  readonly weirCpuMs: number;
  readonly evaluationCpuMs: number;
  /** Every round, in its order: the two take turns. */
  readonly rounds: { readonly emptyCpuMs: readonly number[]; readonly weirCpuMs: readonly number[] };
}

/** Bundles as `npm run deploy` would, without deploying: a module, and the vocabularies' files beside it. */
export async function deploymentBundle(outdir: string): Promise<string> {
  const args = ["deploy", "--dry-run", "--outdir", outdir];
  const wrangler = spawn(join(ROOT, "node_modules/.bin/wrangler"), args, {
    cwd: ROOT,
    env: { ...process.env, WRANGLER_SEND_METRICS: "false", CI: "1" },
    stdio: ["ignore", "ignore", "inherit"],
  });
  const [status] = await once(wrangler, "exit");
  if (status !== 0) throw new Error(`wrangler deploy --dry-run ended with status ${String(status)}`);
  return join(outdir, "worker.js");
}

export async function measureStartup(bundle: string, rounds: number): Promise<Startup> {
  const empty: number[] = [];
  const weir: number[] = [];
  for (let round = 0; round < rounds; round++) {
    empty.push(await startupCpuMs({ text: EMPTY }));
    weir.push(await startupCpuMs({ file: bundle }));
  }
  const [emptyCpuMs, weirCpuMs] = [median(empty), median(weir)];
  return {
    bundleBytes: [bundle, ...tablesBeside(bundle)].reduce((sum, file) => sum + statSync(file).size, 0),
    emptyCpuMs,
    weirCpuMs,
    evaluationCpuMs: weirCpuMs - emptyCpuMs,
    rounds: { emptyCpuMs: empty, weirCpuMs: weir },
  };
}

function tablesBeside(bundle: string): string[] {
  const directory = dirname(bundle);
  return readdirSync(directory)
    .filter((file) => file.endsWith(".bin"))
    .map((file) => join(directory, file));
}

/** CPU of a fresh runtime from its start until it listens, which it does once its modules are evaluated. */
async function startupCpuMs(worker: { readonly file: string } | { readonly text: string }): Promise<number> {
  const directory = mkdtempSync(join(tmpdir(), "weir-startup-"));
  try {
    const module = join(directory, "worker.js");
    const tables = "file" in worker ? tablesBeside(worker.file) : [];
    for (const table of tables) cpSync(table, join(directory, basename(table)));
    if ("file" in worker) cpSync(worker.file, module);
    else writeFileSync(module, worker.text);
    const objects = { binding: "TENANT_LEDGER", className: "TenantLedger", stateDir: directory };
    const service = { entry: module, host: "127.0.0.1", port: 0, bindings: {}, objects };
    writeFileSync(
      join(directory, "config.capnp"),
      workerdConfig(
        service,
        readCompatibility(),
        tables.map((table) => basename(table)),
      ),
    );
    return await cpuMsUntilListening(directory);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

async function cpuMsUntilListening(directory: string): Promise<number> {
  const flags = [
    "--socket-addr",
    "http=127.0.0.1:0",
    "--directory-path",
    `state=${directory}`,
    "--control-fd",
    "3",
  ];
  const child = spawn(WORKERD, ["serve", join(directory, "config.capnp"), ...flags], {
    stdio: ["ignore", "ignore", "inherit", "pipe"],
  });
  try {
    await once(createInterface(child.stdio[3] as Readable), "line");
    return processCpuMs(child.pid ?? 0);
  } finally {
    child.kill("SIGKILL");
    await once(child, "exit");
  }
}

/** User and system time of a process so far, which Linux tells in hundredths of a second. */
function processCpuMs(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8")
    .replace(/^.*\) /s, "")
    .split(" ");
  return (Number(fields[11]) + Number(fields[12])) * 10;
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
}

if (import.meta.main) {
  const outdir = mkdtempSync(join(tmpdir(), "weir-bundle-"));
  const startup = await measureStartup(await deploymentBundle(outdir), 15);
  rmSync(outdir, { recursive: true, force: true });
  const machine = { cpu: cpus()[0]?.model, cores: cpus().length, node: process.version };
  const report = JSON.stringify({ command: "npm run bench -- startup", machine, ...startup }, null, 2);
  mkdirSync(join(import.meta.dirname, "results"), { recursive: true });
  writeFileSync(join(import.meta.dirname, "results/startup.json"), `${report}\n`);
  console.log(report);
}
