/**
 * A disk that fills up under the ledger. Two real ones: a limit on the length of files (the kernel refuses
 * a write that would pass it), which takes no rights, and a file system that is full, which takes a mount
 * namespace and is skipped where there is none.
 */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { cp, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { GATEWAY_ENTRY } from "../../src/cli/paths.ts";
import { layOut, WORKERD } from "../../src/cli/workerd.ts";
import { mintVirtualKey } from "../../src/gateway/virtual-key.ts";
import { isClosed, tokensOf } from "../../src/ledger/state.ts";
import type { Balance, Reservation } from "../../src/ledger/view.ts";
import { type Command, runCommand } from "../support/command.ts";
import { foldedRecord } from "../support/record.ts";
import { soon } from "../support/soon.ts";
import { chatBody, limitOf, MODEL, policyBefore, TENANT } from "../support/stack.ts";

const KILOBYTES = 384;
const CALLERS = 16;
const SLOTS = 10_000;
const TOKENS = 1_000_000_000;
/** So many refusals in a row, with no answer between them, are a full disk. */
const REFUSED_IN_A_ROW = 60;

const ENVIRONMENT = { WEIR_KEY_SECRET: randomBytes(32).toString("hex"), PROVIDER_SIM_KEY: "sk-sim" };
const SERVE = join(import.meta.dirname, "../../src/cli/serve.ts");

let simulator: Command;
let providerUrl: string;
let key: string;
let directory: string;

beforeAll(async () => {
  simulator = runCommand("simulator.ts", ["--port", "0"], { SIM_FIRST_TOKEN_MS: "0", SIM_TOKEN_MS: "0" });
  providerUrl = /http:\/\/[^/\s]+/.exec(await simulator.ready)?.[0] ?? "";
  key = await mintVirtualKey({
    secret: ENVIRONMENT.WEIR_KEY_SECRET,
    keyId: "k",
    user: null,
    tenant: TENANT,
    class: "interactive",
    issuedAtMs: Date.now(),
    expiresAtMs: null,
  });
});
afterAll(async () => {
  simulator.child.kill("SIGKILL");
  await simulator.exitCode;
});
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "weir-disk-"));
  await mkdir(join(directory, "state"));
  await writeFile(join(directory, "policy.json"), policy());
});
afterEach(() => rm(directory, { recursive: true, force: true }));

const policy = () =>
  JSON.stringify(
    policyBefore(providerUrl, {
      leaseTtlMs: 1_000,
      limits: [
        { name: "tokens", kind: "bucket", unit: "tokens", capacity: TOKENS, refillPerMinute: 0 },
        { name: "slots", kind: "gauge", unit: "concurrency", max: SLOTS },
      ],
    }),
  );

interface Gateway {
  readonly url: string;
  /** Where its files are to be seen from here. */
  readonly stateDir: string;
  end(): Promise<void>;
}

async function gatewayOf(child: ChildProcess, url: Promise<string>, stateDir: string): Promise<Gateway> {
  const ended = once(child, "close");
  const end = async () => {
    child.kill("SIGKILL");
    await ended;
  };
  return { url: await url, stateDir, end };
}

/** `trap` makes the signal of an overlong write an error of it: by default it would end the process. */
const FILE_LIMIT = `trap '' XFSZ; ulimit -f ${KILOBYTES}; exec "$@"`;

/** The runtime as `serve` starts it, but by ourselves: Node gives the signals of its children back their defaults. */
async function onShortFiles(): Promise<Gateway> {
  const stateDir = join(directory, "state");
  const bindings = { ...ENVIRONMENT, WEIR_POLICY_EPOCH: String(Date.now()), WEIR_LOCAL: "1" };
  const service = {
    entry: GATEWAY_ENTRY,
    host: "127.0.0.1",
    port: 0,
    bindings,
    documents: { WEIR_POLICY: policy() },
    objects: { binding: "TENANT_LEDGER", className: "TenantLedger", stateDir },
  };
  const config = await layOut(service, directory);
  const options = ["--socket-addr", "http=127.0.0.1:0", "--directory-path", `state=${stateDir}`];
  const command = [WORKERD, "serve", config, ...options, "--control-fd", "3"];
  const child = spawn("bash", ["-c", FILE_LIMIT, "weir", ...command], {
    env: { PATH: process.env["PATH"], ...bindings },
    stdio: ["ignore", "ignore", "ignore", "pipe"],
  });
  const listening = once(createInterface(child.stdio[3] as Readable), "line");
  const url = listening.then(
    ([line]) => `http://127.0.0.1:${(JSON.parse(String(line)) as { port: number }).port}`,
  );
  return gatewayOf(child, url, stateDir);
}

/** `serve` itself, on a file system of its own that nobody else sees. */
async function onSmallDisk(): Promise<Gateway> {
  const stateDir = join(directory, "state");
  const mount = `mount -t tmpfs -o size=${2 * KILOBYTES}k weir ${stateDir} && exec "$@"`;
  const command = [process.execPath, SERVE, "--port", "0", "--state", stateDir];
  command.push("--policy", join(directory, "policy.json"));
  const child = spawn("unshare", ["-rm", "sh", "-c", mount, "weir", ...command], {
    env: { PATH: process.env["PATH"], TMPDIR: directory, ...ENVIRONMENT },
    stdio: ["ignore", "pipe", "ignore"],
  });
  return gatewayOf(child, readyUrl(child.stdout), join(`/proc/${child.pid}/root`, stateDir));
}

async function readyUrl(output: Readable): Promise<string> {
  let url = "";
  for await (const line of createInterface(output)) {
    url = /http:\S+/.exec(line)?.[0] ?? url;
    if (line === "ready") return url;
  }
  throw new Error("serve was never ready");
}

const mountable = spawnSync("unshare", ["-rm", "mount", "-t", "tmpfs", "weir", tmpdir()]).status === 0;

class Caller {
  readonly #gateway: Gateway;
  readonly reserved = new Set<string>();
  /** In tokens. */
  readonly settled = new Map<string, number>();
  refused = 0;
  inARow = 0;
  readonly codes = new Set<string>();

  constructor(gateway: Gateway) {
    this.#gateway = gateway;
  }

  /** Reserves and settles until nothing can be written. */
  async untilFull(): Promise<void> {
    while (this.inARow < REFUSED_IN_A_ROW) {
      const made = await this.post("/reservations", { model: MODEL, inputTokens: 10, maxOutputTokens: 90 });
      if (made === null) continue;
      this.reserved.add(made.id);
      const dispatched = await this.post(`/reservations/${made.id}/dispatch`, { fence: made.fence });
      if (dispatched === null) continue;
      const usage = { inputTokens: 10, outputTokens: this.settled.size % 90 };
      const settled = await this.post(`/reservations/${made.id}/settle`, { fence: made.fence, usage });
      if (settled !== null) this.settled.set(made.id, 10 + usage.outputTokens);
    }
  }

  /** Null for a refusal, which must be that of a ledger out of reach. */
  async post(path: string, body: object): Promise<Reservation | null> {
    const response = await this.send(path, body);
    const answer = await response.json<Reservation & { readonly code: string }>();
    if (response.ok) {
      this.inARow = 0;
      return answer;
    }
    this.refused += 1;
    this.inARow += 1;
    this.codes.add(`${response.status} ${answer.code} ${response.headers.get("retry-after")}`);
    return null;
  }

  send(path: string, body: object): Promise<Response> {
    return fetch(`${this.#gateway.url}/t/${TENANT}${path}`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify(body),
    });
  }
}

async function balanceAt(url: string): Promise<Balance> {
  const response = await fetch(`${url}/t/${TENANT}/balance`, { headers: { authorization: `Bearer ${key}` } });
  return response.json<Balance>();
}

const providerCalls = async () =>
  (await (await fetch(`${providerUrl}/sim/requests`)).json<unknown[]>()).length;

describe.each([
  ["files that may not grow", onShortFiles, false],
  ["a file system without room", onSmallDisk, !mountable],
] as const)("%s", (_, start, skipped) => {
  it.skipIf(skipped)(
    "loses no event that was told, sends nothing unrecorded, and goes on when there is room",
    async () => {
      const gateway = await start();
      const caller = new Caller(gateway);
      try {
        await Promise.all(Array.from({ length: CALLERS }, () => caller.untilFull()));
        // Fail closed: a call that cannot be recorded is not made.
        const before = await providerCalls();
        for (let i = 0; i < 5; i += 1) {
          const response = await caller.send("/v1/chat/completions", chatBody({}));
          expect(response.status).toBe(503);
          await response.text();
        }
        expect(await providerCalls()).toBe(before);
        await cp(gateway.stateDir, join(directory, "kept"), { recursive: true });
      } finally {
        await gateway.end();
      }
      expect([...caller.codes]).toEqual(["503 ledger_unavailable 1"]);
      expect(caller.settled.size).toBeGreaterThan(50);

      const kept = join(directory, "kept");
      const options = ["--policy", join(directory, "policy.json"), "--port", "0", "--state", kept];
      const serve = runCommand("serve.ts", options, { TMPDIR: directory, ...ENVIRONMENT });
      try {
        const url = /http:\/\/[^/\s]+/.exec(await serve.ready)?.[0] ?? "";
        const balance = await soon(async () => {
          const now = await balanceAt(url);
          expect(now.inFlight).toEqual({ requests: 0, tokens: 0 });
          return now;
        }, 2_000);
        const { leases } = await foldedRecord(kept);
        expect([...caller.reserved].filter((id) => !leases.has(id))).toEqual([]);
        for (const [id, tokens] of caller.settled) {
          const settlement = leases.get(id)?.settlement ?? null;
          expect(settlement === null ? null : tokensOf(settlement.usage), id).toBe(tokens);
        }
        const { held, settledTotal, level } = limitOf(balance);
        expect(held).toBe(balance.reconciling.tokens);
        expect(level).toBe(TOKENS - held - settledTotal);
        expect(limitOf(balance, "slots")).toMatchObject({ held: 0, level: SLOTS });
        const frozen = [...leases.values()].filter(({ state }) => !isClosed(state));
        expect(frozen.every(({ state }) => state === "RECONCILING")).toBe(true);
        // And it goes on.
        const again = new Caller({ ...gateway, url });
        expect(
          await again.post("/reservations", { model: MODEL, inputTokens: 10, maxOutputTokens: 90 }),
        ).not.toBeNull();
      } finally {
        serve.child.kill("SIGKILL");
        await serve.exitCode;
      }
    },
  );
});
