/**
 * One worker on plain workerd, as a child that cannot outlive us.
 *
 * A shell stands between. It reads a pipe that we hold: a line on it is a signal's name, its end (we
 * stopped, crashed or were killed) is KILL. Bindings are named in the configuration and valued in the
 * child's environment, so a secret is never written to disk or shown in a list of processes.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import { setTimeout as pause } from "node:timers/promises";
import { bundleWorker } from "./bundle.ts";
import { type Compatibility, readCompatibility } from "./compatibility.ts";
import type { Address } from "./ports.ts";
import { messageOf, Problem } from "./problem.ts";

export interface Service extends Address {
  readonly entry: string;
  /** Text bindings, secrets among them; an environment variable holds 128 KB. */
  readonly bindings: Readonly<Record<string, string>>;
  /** Text bindings of any length and without secrets. */
  readonly documents?: Readonly<Record<string, string>>;
  /** Absent: a worker without objects. */
  readonly objects?: { readonly binding: string; readonly className: string; readonly stateDir: string };
}

export interface Running {
  readonly url: string;
  /** Resolves when the child has gone, for whatever reason. */
  readonly ended: Promise<string>;
  /** Asks first and kills later; resolves when no process is left. */
  stop(): Promise<void>;
}

/** The runtime's program: the pinned one, or another by its path. CommonJS, of which not every loader makes the same default import. */
export const WORKERD: string =
  process.env["WEIR_WORKERD"] ?? createRequire(import.meta.url)("workerd").default;

/** For open answers to end in, once a stop was asked for. */
const STOP_GRACE_MS = 2_000;
const READY_MAX_MS = 30_000;
const POLL_MS = 50;

const KEEPER = `
"$@" 3<&- & child=$!
{ while read -r signal; do kill -s "$signal" $child; done; kill -s KILL $child; } <&3 2>/dev/null & keeper=$!
wait $child; status=$?
kill $keeper
exit $status
`;

/** Starts a worker and waits until it answers. */
export async function startService(service: Service): Promise<Running> {
  const workDir = await mkdtemp(join(tmpdir(), "weir-"));
  try {
    const child = spawnWorkerd(service, await layOut(service, workDir));
    const running = { url: "", ended: endOf(child), stop: () => stopChild(child) };
    try {
      const port = await Promise.race([listeningPort(child), deathOf(running)]);
      const url = `http://${bracketed(reachable(service.host))}:${port}`;
      await Promise.race([healthy(url), deathOf(running)]);
      return { ...running, url };
    } catch (error) {
      await running.stop();
      throw error;
    }
  } finally {
    // The runtime has read its files by now.
    await rm(workDir, { recursive: true, force: true });
  }
}

/** The configuration, which holds names and no values. */
/** All that the runtime reads, in one directory: the bundle, what it imports as bytes, documents, configuration. */
export async function layOut(service: Service, directory: string): Promise<string> {
  const data = await bundleWorker({ entry: service.entry, outfile: join(directory, "worker.js") });
  for (const [name, file] of data) await symlink(file, join(directory, name));
  for (const [name, text] of Object.entries(service.documents ?? {}))
    await writeFile(join(directory, name), text);
  const config = join(directory, "config.capnp");
  await writeFile(config, workerdConfig(service, readCompatibility(), [...data.keys()]));
  return config;
}

export function workerdConfig(
  { bindings, documents = {}, objects }: Service,
  { date, flags }: Compatibility,
  dataModules: readonly string[],
): string {
  const entries = Object.keys(bindings).map((name) => `(name = "${name}", fromEnvironment = "${name}")`);
  for (const name of Object.keys(documents)) entries.push(`(name = "${name}", text = embed "${name}")`);
  const services = [
    `(name = "main", worker = .main)`,
    `(name = "internet", network = (allow = ["public", "private"], tlsOptions = (trustBrowserCas = true)))`,
  ];
  const modules = [
    `(name = "worker.js", esModule = embed "worker.js")`,
    ...dataModules.map((name) => `(name = "${name}", data = embed "${name}")`),
  ];
  let storage = "";
  if (objects !== undefined) {
    entries.push(`(name = "${objects.binding}", durableObjectNamespace = "${objects.className}")`);
    services.push(`(name = "state", disk = (writable = true))`);
    // The key decides where an object's rows lie: it may never change.
    storage = `
  durableObjectNamespaces = [(className = "${objects.className}", uniqueKey = "weir-${objects.className}", enableSql = true)],
  durableObjectStorage = (localDisk = "state"),`;
  }
  return `using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [
    ${services.join(",\n    ")}
  ],
  sockets = [(name = "http", http = (), service = "main")]
);

const main :Workerd.Worker = (
  modules = [
    ${modules.join(",\n    ")}
  ],
  compatibilityDate = "${date}",
  compatibilityFlags = ${JSON.stringify(flags)},${storage}
  bindings = [
    ${entries.join(",\n    ")}
  ]
);
`;
}

function spawnWorkerd({ host, port, bindings, objects }: Service, config: string): ChildProcess {
  const command = [
    WORKERD,
    "serve",
    config,
    "--socket-addr",
    `http=${bracketed(host)}:${port}`,
    "--control-fd",
    "4",
  ];
  if (objects !== undefined) command.push("--directory-path", `state=${objects.stateDir}`);
  return spawn("/bin/sh", ["-c", KEEPER, "weir", ...command], {
    // Out of the terminal's reach: an interrupt is ours to pass on.
    detached: true,
    env: { PATH: process.env.PATH, ...bindings },
    stdio: ["ignore", "inherit", "inherit", "pipe", "pipe"],
  });
}

async function stopChild(child: ChildProcess): Promise<void> {
  const leash = child.stdio[3] as Writable;
  leash.on("error", () => {});
  const ended = endOf(child);
  leash.write("TERM\n");
  await Promise.race([ended, pause(STOP_GRACE_MS, undefined, { ref: false })]);
  leash.end();
  await ended;
}

async function endOf(child: ChildProcess): Promise<string> {
  if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
  // A keeper that was itself killed leaves the worker to us.
  (child.stdio[3] as Writable).destroy();
  return `workerd ended with ${child.signalCode ?? `status ${child.exitCode}`}`;
}

async function deathOf(running: Pick<Running, "ended">): Promise<never> {
  throw new Problem(`${await running.ended} before it was ready`);
}

async function listeningPort(child: ChildProcess): Promise<number> {
  for await (const line of createInterface(child.stdio[4] as Readable)) {
    const message = JSON.parse(line) as { event?: string; port?: number };
    if (message.event === "listen" && message.port !== undefined) return message.port;
  }
  return new Promise(() => {});
}

async function healthy(url: string): Promise<void> {
  const deadlineMs = performance.now() + READY_MAX_MS;
  let answer = "no answer";
  while (performance.now() < deadlineMs) {
    try {
      const response = await fetch(`${url}/healthz`);
      answer = `${response.status} ${(await response.text()).trim()}`;
      if (response.ok) return;
    } catch (error) {
      answer = messageOf(error);
    }
    await pause(POLL_MS);
  }
  throw new Problem(`${url}/healthz was not well within ${READY_MAX_MS / 1_000} seconds: ${answer}`);
}

const reachable = (host: string): string => (host === "0.0.0.0" ? "127.0.0.1" : host === "::" ? "::1" : host);
const bracketed = (host: string): string => (host.includes(":") ? `[${host}]` : host);
