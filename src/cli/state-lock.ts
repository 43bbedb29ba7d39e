/**
 * One gateway a state directory: two that admit against the same balance, each from its own memory,
 * would admit twice. The lock is a socket that somebody answers, so that it cannot outlive its holder.
 */
import { createHash } from "node:crypto";
import { once } from "node:events";
import { realpathSync, rmSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Problem } from "./problem.ts";

/** Held until this process ends. */
export async function lockState(stateDir: string): Promise<void> {
  // Not in the directory itself: a socket's path must be short.
  const digest = createHash("sha256").update(realpathSync(stateDir)).digest("hex").slice(0, 16);
  const path = join(tmpdir(), `weir-${digest}.lock`);
  if (await isAnswered(path))
    throw new Problem(`the state directory ${stateDir} is in use by another gateway`);
  rmSync(path, { force: true });
  const lock = createServer((visitor) => visitor.destroy());
  lock.listen(path);
  await once(lock, "listening");
  lock.unref();
  process.once("exit", () => rmSync(path, { force: true }));
}

async function isAnswered(path: string): Promise<boolean> {
  const visitor = connect(path);
  try {
    await once(visitor, "connect");
    return true;
  } catch {
    return false;
  } finally {
    visitor.destroy();
  }
}
