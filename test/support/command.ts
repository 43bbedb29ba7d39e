/** The project's commands as real processes. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { connect } from "node:net";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";

const ROOT = join(import.meta.dirname, "../..");

export interface Command {
  readonly child: ChildProcess;
  /** All that was written so far. */
  readonly output: { stdout: string; stderr: string };
  readonly exitCode: Promise<number | null>;
  /** Resolves with the standard output once `ready` stands on a line of its own. */
  readonly ready: Promise<string>;
}

/** `script` is a file of src/cli; the environment is this one and no more. */
export function runCommand(
  script: string,
  args: readonly string[],
  environment: Record<string, string> = {},
): Command {
  return runProcess(process.execPath, [join(ROOT, "src/cli", script), ...args], environment);
}

/** The same by its name in package.json, as a user types it. */
export function runScript(
  name: string,
  args: readonly string[],
  environment: Record<string, string> = {},
): Command {
  return runProcess("npm", ["run", name, "--", ...args], environment);
}

function runProcess(file: string, args: readonly string[], environment: Record<string, string>): Command {
  const child = spawn(file, args, {
    cwd: ROOT,
    env: { PATH: process.env["PATH"], ...environment },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const output = { stdout: "", stderr: "" };
  child.stdout.setEncoding("utf8").on("data", (text: string) => (output.stdout += text));
  child.stderr.setEncoding("utf8").on("data", (text: string) => (output.stderr += text));
  const exitCode = once(child, "close").then(() => child.exitCode);
  return { child, output, exitCode, ready: untilReady(child, output) };
}

async function untilReady(child: ChildProcess, output: Command["output"]): Promise<string> {
  while (!/^ready$/m.test(output.stdout)) {
    if (child.exitCode !== null || child.signalCode !== null) return output.stdout;
    await pause(20);
  }
  return output.stdout;
}

/** True once nothing answers there any more; false if something still does after the patience is spent. */
export async function isSilent(port: number, patienceMs = 5_000): Promise<boolean> {
  const deadlineMs = performance.now() + patienceMs;
  while (performance.now() < deadlineMs) {
    if (!(await answers(port))) return true;
    await pause(50);
  }
  return false;
}

async function answers(port: number): Promise<boolean> {
  const socket = connect(port, "127.0.0.1");
  try {
    await once(socket, "connect");
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}
