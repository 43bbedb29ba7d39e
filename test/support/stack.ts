/**
 * The whole product on this machine: a simulated provider, and before it the gateway as its operator runs it,
 * through the command line, on a state directory that outlives it. Each stack has ports and files of its own.
 */
import { randomBytes, randomUUID } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { mintVirtualKey } from "../../src/gateway/virtual-key.ts";
import type { Balance, LimitRow } from "../../src/ledger/view.ts";
import type { RequestRecord } from "../simulator/journal.ts";
import { type Command, isSilent, runCommand } from "./command.ts";

export const MODEL = "gpt-4o-mini";
export const TENANT = "acme";
export const PROVIDER_SECRET = "sk-provider-secret-of-the-tests";

/** A model name that the policy reads as `MODEL` (a fine-tune of it) and the simulator as directives. */
export function told(directives: string, model: string = MODEL): string {
  return `ft:${model}:told?${directives}`;
}

type Members = Readonly<Record<string, unknown>>;

/** What a test's policy says differently from the one below. */
export interface PolicyChanges {
  readonly provider?: Members;
  /** Besides `sim`, which serves `MODEL`. */
  readonly providers?: Readonly<Record<string, Members>>;
  readonly models?: Readonly<Record<string, Members>>;
  readonly route?: Members;
  readonly limits?: readonly Members[];
  /** By tenant, what its limits say differently. */
  readonly overrides?: Readonly<Record<string, Members>>;
  readonly leaseTtlMs?: number;
  readonly reconcileAgeMaxMs?: number;
}

/** Buckets that hardly refill, so that what is spent stays spent for the length of a test. */
export function policyBefore(providerUrl: string, changes: PolicyChanges = {}): Members {
  const {
    provider,
    providers,
    models,
    route,
    limits,
    overrides = {},
    leaseTtlMs,
    reconcileAgeMaxMs,
  } = changes;
  const sim = { dialect: "openai", baseUrl: `${providerUrl}/v1`, apiKeySecret: "PROVIDER_SIM_KEY" };
  const others = Object.entries(providers ?? {}).map(([name, other]) => [name, { ...sim, ...other }]);
  const tenants = Object.entries(overrides).map(([name, override]) => [name, { overrides: override }]);
  return {
    version: 1,
    providers: { sim: { ...sim, ...provider }, ...Object.fromEntries(others) },
    models: { [MODEL]: { provider: "sim", contextTokens: 128_000, maxOutputTokens: 16_384 }, ...models },
    routes: { default: { injectMaxOutputTokens: true, maxOutputTokens: 1_000, ...route } },
    limits: limits ?? [
      { name: "tokens", kind: "bucket", unit: "tokens", capacity: 1_000_000, refillPerMinute: 1 },
      { name: "requests", kind: "bucket", unit: "requests", capacity: 1_000, refillPerMinute: 1 },
      { name: "slots", kind: "gauge", unit: "concurrency", max: 200 },
    ],
    tenants: { "*": {}, ...Object.fromEntries(tenants) },
    ...(leaseTtlMs === undefined ? {} : { leaseTtlMs }),
    ...(reconcileAgeMaxMs === undefined ? {} : { reconcileAgeMaxMs }),
  };
}

export interface StackOptions {
  readonly policy?: PolicyChanges;
  /** `SIM_*` settings; by default a provider that is as fast as it can be. */
  readonly simulator?: Readonly<Record<string, string>>;
  /** The runtime under the gateway, where it is not to be the pinned one. */
  readonly workerd?: string;
}

export interface CallOptions {
  readonly tenant?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

const READY_MAX_MS = 20_000;

export async function startStack({ policy, simulator = {}, workerd }: StackOptions = {}): Promise<Stack> {
  const settings = { SIM_API_KEY: PROVIDER_SECRET, SIM_FIRST_TOKEN_MS: "0", SIM_TOKEN_MS: "0", ...simulator };
  const provider = await startService("simulator.ts", ["--port", "0"], settings);
  const directory = await mkdtemp(join(tmpdir(), "weir-stack-"));
  await writeFile(join(directory, "policy.json"), JSON.stringify(policyBefore(provider.url, policy)));
  const stack = new Stack(provider, directory, workerd);
  try {
    await stack.restart();
  } catch (error) {
    await stack.stop();
    throw error;
  }
  return stack;
}

interface Service {
  readonly command: Command;
  readonly url: string;
}

/** Resolves when it is ready, with the address that it says it has. */
async function startService(
  script: string,
  options: readonly string[],
  environment: Record<string, string>,
): Promise<Service> {
  const command = runCommand(script, options, environment);
  const { child, output, exitCode } = command;
  const reap = () => child.kill("SIGKILL");
  process.once("exit", reap);
  void exitCode.then(() => process.off("exit", reap));
  const late = setTimeout(reap, READY_MAX_MS);
  const url = /listens on (http:\/\/[^/\s]+)[^]*^ready$/m.exec(await command.ready)?.[1];
  clearTimeout(late);
  if (url === undefined)
    throw new Error(`${script} was not ready within ${READY_MAX_MS} ms: ${output.stderr}`);
  return { command, url };
}

/** Resolves when nothing listens any more: what the command had started has gone with it. */
async function endService({ command, url }: Service, signal: "SIGTERM" | "SIGKILL"): Promise<void> {
  command.child.kill(signal);
  await command.exitCode;
  if (!(await isSilent(Number(new URL(url).port)))) throw new Error(`${url} is still served after its end`);
}

export class Stack {
  readonly stateDir: string;
  readonly #provider: Service;
  readonly #directory: string;
  readonly #workerd: string | undefined;
  readonly #keySecret = randomBytes(32).toString("hex");
  readonly #keys = new Map<string, Promise<string>>();
  #gateway: Service | null = null;

  constructor(provider: Service, directory: string, workerd?: string) {
    this.#provider = provider;
    this.#workerd = workerd;
    this.#directory = directory;
    this.stateDir = join(directory, "state");
  }

  /** The gateway's address; another one after a restart. */
  get url(): string {
    if (this.#gateway === null) throw new Error("the gateway does not run");
    return this.#gateway.url;
  }

  get providerUrl(): string {
    return this.#provider.url;
  }

  /** What an SDK is given as its base URL. */
  baseUrl(tenant: string = TENANT): string {
    return `${this.url}/t/${tenant}/v1`;
  }

  key(tenant: string = TENANT): Promise<string> {
    const known = this.#keys.get(tenant);
    if (known !== undefined) return known;
    const minted = mintVirtualKey({
      secret: this.#keySecret,
      keyId: randomUUID(),
      user: null,
      tenant,
      class: "interactive",
      issuedAtMs: Date.now(),
      expiresAtMs: null,
    });
    this.#keys.set(tenant, minted);
    return minted;
  }

  /** A chat completion; a body without a model, messages or a ceiling gets ours. */
  async request(
    body: object,
    { tenant = TENANT, headers = {}, signal }: CallOptions = {},
  ): Promise<Response> {
    return fetch(`${this.baseUrl(tenant)}/chat/completions`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${await this.key(tenant)}`,
        "content-type": "application/json",
        ...headers,
      },
      body: JSON.stringify(chatBody(body)),
      signal: signal ?? null,
    });
  }

  async balance(tenant: string = TENANT): Promise<Balance> {
    const response = await fetch(`${this.url}/t/${tenant}/balance`, {
      headers: { authorization: `Bearer ${await this.key(tenant)}` },
    });
    if (!response.ok) throw new Error(`balance: ${response.status} ${await response.text()}`);
    return response.json<Balance>();
  }

  /** The provider's journal, oldest first. */
  async simulatorRequests(): Promise<RequestRecord[]> {
    return (await fetch(`${this.providerUrl}/sim/requests`)).json<RequestRecord[]>();
  }

  /** The provider's own account of the request that it gave this id. */
  async simulatorRequest(id: string | null): Promise<RequestRecord> {
    const record = (await this.simulatorRequests()).find((candidate) => candidate.id === id);
    if (record === undefined) throw new Error(`the provider knows no request ${id}`);
    return record;
  }

  /** The bytes that the provider's answer body consisted of. */
  async simulatorBytes(id: string | null): Promise<Buffer> {
    return Buffer.from(await (await fetch(`${this.providerUrl}/sim/stream/${id}`)).arrayBuffer());
  }

  /** Another life of the gateway on the same state. */
  async restart(): Promise<void> {
    await this.#endGateway("SIGTERM");
    const options = [
      "--policy",
      join(this.#directory, "policy.json"),
      "--port",
      "0",
      "--state",
      this.stateDir,
    ];
    this.#gateway = await startService("serve.ts", options, {
      TMPDIR: this.#directory,
      WEIR_KEY_SECRET: this.#keySecret,
      PROVIDER_SIM_KEY: PROVIDER_SECRET,
      ...(this.#workerd === undefined ? {} : { WEIR_WORKERD: this.#workerd }),
    });
  }

  /** As a power cut would end it: nothing is flushed and nobody is told. */
  kill9(): Promise<void> {
    return this.#endGateway("SIGKILL");
  }

  /** Open answers are not waited for. */
  async stop(): Promise<void> {
    await this.kill9();
    await endService(this.#provider, "SIGKILL");
    await rm(this.#directory, { recursive: true, force: true });
  }

  async #endGateway(signal: "SIGTERM" | "SIGKILL"): Promise<void> {
    const gateway = this.#gateway;
    this.#gateway = null;
    if (gateway !== null) await endService(gateway, signal);
  }
}

/** A body without a model, messages or a ceiling gets these. */
export function chatBody(body: object): Members {
  return {
    model: MODEL,
    messages: [{ role: "user", content: "How wide is the river?" }],
    max_tokens: 100,
    ...body,
  };
}

export function limitOf(balance: Balance, name = "tokens"): LimitRow {
  const row = balance.limits.find((limit) => limit.name === name);
  if (row === undefined) throw new Error(`the balance has no limit ${name}`);
  return row;
}

/** The prompt as the gateway counted it: the worst case holds that and the ceiling. */
export function countedInput(headers: Headers, maxTokens = 100): number {
  return Number(headers.get("x-weir-held-tokens")) - maxTokens;
}
