import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { verifyVirtualKey } from "../../src/gateway/virtual-key.ts";
import { type Command, isSilent, runCommand, runScript } from "../support/command.ts";

const SECRET = "a secret of thirty-two characters or more";
const SECRETS = { WEIR_KEY_SECRET: SECRET, PROVIDER_SIMULATOR_KEY: "sk-simulated" };
const POLICY = join(import.meta.dirname, "../../src/cli/demo-policy.json");

const home = mkdtempSync(join(tmpdir(), "weir-test-"));
let homes = 0;
const stateDir = () => join(home, `state-${homes++}`);
afterAll(() => rmSync(home, { recursive: true, force: true }));

const started: Command[] = [];
const run = (...[script, args, environment]: Parameters<typeof runCommand>): Command => {
  const command = runCommand(script, args, environment);
  started.push(command);
  return command;
};
afterEach(async () => {
  for (const { child, exitCode } of started.splice(0)) {
    child.kill("SIGTERM");
    await exitCode;
  }
});

/** The lines on standard error of a command that must refuse to run. */
async function complaints(...command: Parameters<typeof runCommand>): Promise<string[]> {
  const { output, exitCode } = run(...command);
  expect(await exitCode).toBe(1);
  expect(output.stdout).toBe("");
  return output.stderr.trimEnd().split("\n");
}

const portOf = (stdout: string): number => Number(/http:\/\/127\.0\.0\.1:(\d+)/.exec(stdout)?.[1]);

async function serveReady(state = stateDir()): Promise<{ command: Command; port: number }> {
  const command = run("serve.ts", ["--policy", POLICY, "--port", "0", "--state", state], SECRETS);
  const stdout = await command.ready;
  expect(stdout, command.output.stderr).toMatch(/\nready\n$/);
  return { command, port: portOf(stdout) };
}

describe("serve refuses, in one clear line and without a stack,", () => {
  it("a busy port", async () => {
    const holder = createServer().listen(0, "127.0.0.1");
    await once(holder, "listening");
    const address = holder.address();
    const port = address !== null && typeof address === "object" ? address.port : 0;
    const lines = await complaints(
      "serve.ts",
      ["--policy", POLICY, "--port", `${port}`, "--state", stateDir()],
      SECRETS,
    );
    holder.close();
    expect(lines).toEqual([`weir: port ${port} on 127.0.0.1 is already in use`]);
  });

  it("a policy that is not there", async () => {
    const lines = await complaints(
      "serve.ts",
      ["--policy", join(home, "none.json"), "--state", stateDir()],
      SECRETS,
    );
    expect(lines).toEqual([expect.stringMatching(/^weir: cannot read the policy: ENOENT.*none\.json/)]);
  });

  it("a policy that is not JSON", async () => {
    const file = join(home, "bad.json");
    writeFileSync(file, "{\n  version: 1\n}");
    const lines = await complaints("serve.ts", ["--policy", file, "--state", stateDir()], SECRETS);
    expect(lines).toEqual([expect.stringMatching(/^weir: .*bad\.json is not JSON: /)]);
  });

  it("a policy with problems, each named", async () => {
    const file = join(home, "wrong.json");
    writeFileSync(
      file,
      readFileSync(POLICY, "utf8").replace(`"version": 1`, `"version": 2`).replace(`"max": 64`, `"max": -1`),
    );
    const lines = await complaints("serve.ts", ["--policy", file, "--state", stateDir()], SECRETS);
    expect(lines).toEqual([
      expect.stringMatching(/wrong\.json: version: expected 1, received 2$/),
      expect.stringMatching(/wrong\.json: limits\.2\.max: expected .*, received -1$/),
    ]);
  });

  it.each([
    ["no policy", ["--state", "s"], SECRETS, "weir: --policy is required"],
    ["no state directory", ["--policy", POLICY], SECRETS, "weir: --state is required"],
    [
      "an unknown option",
      ["--polcy", POLICY],
      SECRETS,
      /^weir: Unknown option '--polcy' \(known options: --policy, /,
    ],
    [
      "an option without its value",
      ["--policy"],
      SECRETS,
      /^weir: Option '--policy <value>' argument missing/,
    ],
    ["a word too many", ["serve"], SECRETS, /^weir: Unexpected argument 'serve'/],
    ["a port that is none", ["--port", "87a7"], SECRETS, /^weir: --port must be a port number/],
    ["a missing key secret", ["--policy", POLICY, "--state", "s"], {}, /^weir: WEIR_KEY_SECRET is not set/],
    [
      "a short key secret",
      ["--policy", POLICY, "--state", "s"],
      { WEIR_KEY_SECRET: "short" },
      /at least 32 characters, not 5$/,
    ],
    [
      "a missing provider secret",
      ["--policy", POLICY, "--state", "s"],
      { WEIR_KEY_SECRET: SECRET },
      "weir: PROVIDER_SIMULATOR_KEY is not set: provider simulator needs it",
    ],
  ])("%s", async (_, args, environment: Record<string, string>, line) => {
    expect(await complaints("serve.ts", args, environment)).toEqual([
      typeof line === "string" ? line : expect.stringMatching(line),
    ]);
  });

  it("a state directory that another gateway holds", async () => {
    const state = stateDir();
    await serveReady(state);
    const lines = await complaints(
      "serve.ts",
      ["--policy", POLICY, "--port", "0", "--state", state],
      SECRETS,
    );
    expect(lines).toEqual([`weir: the state directory ${state} is in use by another gateway`]);
  });
});

describe("serve", () => {
  it("answers when it says that it is ready", async () => {
    const { port } = await serveReady();
    expect((await fetch(`http://127.0.0.1:${port}/healthz`)).status).toBe(200);
    expect(await (await fetch(`http://127.0.0.1:${port}/readyz`)).json()).toMatchObject({ ready: true });
  });

  it.each(["SIGINT", "SIGTERM", "SIGHUP"] as const)("leaves no process after %s", async (signal) => {
    const { command, port } = await serveReady();
    command.child.kill(signal);
    expect(await command.exitCode).toBe(0);
    expect(command.output.stderr).toBe("");
    expect(await isSilent(port, 100)).toBe(true);
  });

  it("leaves no process when it is killed itself", async () => {
    const { command, port } = await serveReady();
    command.child.kill("SIGKILL");
    await command.exitCode;
    expect(await isSilent(port)).toBe(true);
  });

  it.each(["SIGTERM", "SIGKILL"] as const)(
    "leaves no process after %s for the npm that runs it",
    async (signal) => {
      const command = runScript("serve", ["--policy", POLICY, "--port", "0", "--state", stateDir()], SECRETS);
      const port = portOf(await command.ready);
      command.child.kill(signal);
      await command.exitCode;
      expect(await isSilent(port)).toBe(true);
    },
  );

  it("takes a policy that no environment variable could hold", async () => {
    const file = join(home, "large.json");
    const tenants = Object.fromEntries(
      Array.from({ length: 20_000 }, (_, tenant) => [`tenant-${tenant}`, {}]),
    );
    writeFileSync(file, JSON.stringify({ ...JSON.parse(readFileSync(POLICY, "utf8")), tenants }));
    const command = run("serve.ts", ["--policy", file, "--port", "0", "--state", stateDir()], SECRETS);
    const port = portOf(await command.ready);
    expect(await (await fetch(`http://127.0.0.1:${port}/readyz`)).json()).toMatchObject({ ready: true });
  });

  it("takes up its state where a killed one left it", async () => {
    const state = stateDir();
    const { command, port } = await serveReady(state);
    command.child.kill("SIGKILL");
    await command.exitCode;
    expect(await isSilent(port)).toBe(true);
    await serveReady(state);
  });
});

describe("key", () => {
  const lastLine = (text: string): string => text.trimEnd().split("\n").at(-1) ?? "";

  it("prints a key alone on the last line", async () => {
    const { output, exitCode } = run(
      "key.ts",
      ["--tenant", "acme", "--class", "batch", "--expires", "30d"],
      SECRETS,
    );
    expect(await exitCode).toBe(0);
    const key = lastLine(output.stdout);
    const claims = {
      tenant: "acme",
      class: "batch",
      user: null,
      keyId: expect.stringMatching(/^[0-9a-f-]{36}$/),
    };
    expect(await verifyVirtualKey(key, SECRET, Date.now())).toEqual({ ok: true, claims });
    const days30 = 30 * 86_400_000;
    expect(await verifyVirtualKey(key, SECRET, Date.now() + days30)).toEqual({
      ok: false,
      reason: "expired",
    });
  });

  it.each([
    [["--tenant", "Acme"], SECRETS, /--tenant must be 1 to 63 of a-z/],
    [["--tenant", "acme", "--class", "gold"], SECRETS, /--class must be interactive or batch, not "gold"$/],
    [["--tenant", "acme", "--expires", "soon"], SECRETS, /--expires must be a duration such as 90s/],
    [["--tenant", "acme"], {}, /WEIR_KEY_SECRET is not set/],
    [["--tenant", "acme"], { WEIR_KEY_SECRET: "short" }, /at least 32 characters, not 5$/],
    [[], SECRETS, /--tenant is required$/],
  ])("refuses %j in one line", async (args, environment: Record<string, string>, line) => {
    expect(await complaints("key.ts", args, environment)).toEqual([expect.stringMatching(line)]);
  });
});

describe("start", () => {
  it("prints a key and a curl line that work, and leaves no process", async () => {
    const command = run("start.ts", ["--port", "0", "--state", stateDir()]);
    const stdout = await command.ready;
    expect(stdout, command.output.stderr).toMatch(/\nready\n$/);
    const port = portOf(stdout);
    const [key = ""] = /weir_[\w.-]+/.exec(stdout) ?? [];
    const [, body = ""] = / -d '(.*)'/.exec(stdout) ?? [];
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    const answer = await fetch(`http://127.0.0.1:${port}/t/demo/v1/chat/completions`, {
      method: "POST",
      headers,
      body,
    });
    expect(answer.status).toBe(200);
    expect(answer.headers.get("x-weir-rung")).toBe("FULL");
    expect(await answer.text()).toMatch(/data: \[DONE\]\n\n$/);
    const balance = await fetch(`http://127.0.0.1:${port}/t/demo/balance`, { headers });
    expect(await balance.json()).toMatchObject({ tenant: "demo" });
    command.child.kill("SIGINT");
    expect(await command.exitCode).toBe(0);
    expect(await isSilent(port, 100)).toBe(true);
  });
});

describe("simulator", () => {
  it("runs alone", async () => {
    const command = run("simulator.ts", ["--port", "0"], { SIM_API_KEY: "sk-simulated" });
    const port = portOf(await command.ready);
    const models = (key: string) =>
      fetch(`http://127.0.0.1:${port}/v1/models`, { headers: { authorization: `Bearer ${key}` } });
    expect((await models("sk-simulated")).status).toBe(200);
    expect((await models("sk-other")).status).toBe(401);
  });
});
