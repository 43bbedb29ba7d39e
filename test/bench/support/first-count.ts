/** Starts a fresh runtime for each first count, and reads off the process what that took. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { layOut, WORKERD } from "../../../src/cli/workerd.ts";

export interface FirstCount {
  readonly tokens: number;
  /** User and system time of the process, which Linux tells in hundredths of a second. */
  readonly cpuMs: number;
  /** Growth of the resident set; V8 keeps garbage for a while, so this is an upper bound of what stays. */
  readonly megabytes: number;
}

export async function firstCount(path: "/weir" | "/js-tiktoken"): Promise<FirstCount> {
  const directory = mkdtempSync(join(tmpdir(), "weir-first-count-"));
  try {
    const entry = join(import.meta.dirname, "first-count-worker.ts");
    const config = await layOut({ entry, host: "127.0.0.1", port: 0, bindings: {} }, directory);
    const flags = ["--socket-addr", "http=127.0.0.1:0", "--control-fd", "3"];
    const child = spawn(WORKERD, ["serve", config, ...flags], {
      stdio: ["ignore", "ignore", "inherit", "pipe"],
    });
    try {
      const [line] = (await once(createInterface(child.stdio[3] as Readable), "line")) as [string];
      const url = `http://127.0.0.1:${(JSON.parse(line) as { port: number }).port}`;
      const get = async (at: string) => (await fetch(url + at)).text();
      // A first request costs by itself, whatever it asks for.
      await get("/");
      const before = readProcess(child.pid ?? 0);
      const tokens = Number(await get(path));
      const after = readProcess(child.pid ?? 0);
      return {
        tokens,
        cpuMs: after.cpuMs - before.cpuMs,
        megabytes: (after.residentKb - before.residentKb) / 1024,
      };
    } finally {
      child.kill("SIGKILL");
      await once(child, "exit");
    }
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

function readProcess(pid: number): { readonly cpuMs: number; readonly residentKb: number } {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8")
    .replace(/^.*\) /s, "")
    .split(" ");
  const resident = /^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
  return { cpuMs: (Number(fields[11]) + Number(fields[12])) * 10, residentKb: Number(resident) };
}
