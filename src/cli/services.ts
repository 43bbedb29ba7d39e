/** The two workers this project runs on this machine: the gateway and the simulated provider. */
import { mkdirSync, readFileSync } from "node:fs";
import { resolve } from "node:path";
import { KEY_SECRET_CHARACTERS_MIN } from "../gateway/virtual-key.ts";
import { type Policy, parsePolicy } from "../policy/schema.ts";
import { GATEWAY_ENTRY, SIMULATOR_ENTRY } from "./paths.ts";
import { type Address, refuseBusyPort } from "./ports.ts";
import { messageOf, Problem } from "./problem.ts";
import { lockState } from "./state-lock.ts";
import { type Running, startService } from "./workerd.ts";

const ORPHAN_CHECK_MS = 250;

export interface Gateway extends Address {
  readonly policy: string;
  readonly stateDir: string;
  /** Of these, only the gateway's own and the providers' secrets reach the worker. */
  readonly environment: Readonly<Record<string, string | undefined>>;
}

export async function startGateway({ host, port, policy, stateDir, environment }: Gateway): Promise<Running> {
  const bindings = {
    ...textsNamed(/^PROVIDER_[A-Z0-9_]+$/, environment),
    ...textsNamed(/^WEIR_ADMIN_TOKEN$/, environment),
    WEIR_KEY_SECRET: keySecret(environment),
    WEIR_POLICY_EPOCH: String(Date.now()),
    WEIR_LOCAL: "1",
  };
  await refuseBusyPort({ host, port });
  const directory = madeDirectory(stateDir);
  await lockState(directory);
  return startService({
    entry: GATEWAY_ENTRY,
    host,
    port,
    bindings,
    documents: { WEIR_POLICY: policy },
    objects: { binding: "TENANT_LEDGER", className: "TenantLedger", stateDir: directory },
  });
}

export interface Simulator {
  readonly port: number;
  readonly environment: Readonly<Record<string, string | undefined>>;
}

export async function startSimulator({ port, environment }: Simulator): Promise<Running> {
  const address = { host: "127.0.0.1", port };
  await refuseBusyPort(address);
  const bindings = textsNamed(/^SIM_[A-Z0-9_]+$/, environment);
  return startService({ ...address, entry: SIMULATOR_ENTRY, bindings });
}

export function keySecret(environment: Readonly<Record<string, string | undefined>>): string {
  const secret = environment["WEIR_KEY_SECRET"] ?? "";
  if (secret === "") throw new Problem("WEIR_KEY_SECRET is not set: virtual keys are signed with it");
  if (secret.length < KEY_SECRET_CHARACTERS_MIN) {
    throw new Problem(
      `WEIR_KEY_SECRET must have at least ${KEY_SECRET_CHARACTERS_MIN} characters, not ${secret.length}`,
    );
  }
  return secret;
}

export interface PolicyFile {
  readonly text: string;
  readonly policy: Policy;
}

/** Every problem of the document is reported at once. */
export function readPolicy(file: string): PolicyFile {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    throw new Problem(`cannot read the policy: ${messageOf(error)}`);
  }
  let document: unknown;
  try {
    document = JSON.parse(text);
  } catch (error) {
    throw new Problem(`${file} is not JSON: ${messageOf(error)}`);
  }
  const parsed = parsePolicy(document);
  if (parsed.ok) return { text, policy: parsed.policy };
  throw new Problem(
    ...parsed.issues.map(
      ({ path, expected, received }) => `${file}: ${path}: expected ${expected}, received ${received}`,
    ),
  );
}

/** A provider without its secret could only refuse: better said at the start than at the first request. */
export function requireProviderSecrets({ providers }: Policy, environment: Gateway["environment"]): void {
  const missing = Object.entries(providers).filter(([, { apiKeySecret }]) => !environment[apiKeySecret]);
  if (missing.length === 0) return;
  throw new Problem(
    ...missing.map(([name, { apiKeySecret }]) => `${apiKeySecret} is not set: provider ${name} needs it`),
  );
}

/** Runs until it is told to stop or one of the services dies; then none of them is left. */
export async function untilStopped(services: readonly Running[]): Promise<number> {
  const death = await Promise.race([toldToStop(), ...services.map(({ ended }) => ended)]);
  await Promise.all(services.map((service) => service.stop()));
  if (death === null) return 0;
  throw new Problem(death);
}

function toldToStop(): Promise<null> {
  return new Promise((stop) => {
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.once(signal, () => stop(null));
    // An npm that is killed outright has no last word, and whoever killed it meant us.
    const npm = process.env["npm_lifecycle_event"] === undefined ? null : process.ppid;
    setInterval(() => npm !== null && npm !== process.ppid && stop(null), ORPHAN_CHECK_MS).unref();
  });
}

function textsNamed(pattern: RegExp, environment: Gateway["environment"]): Record<string, string> {
  const texts: Record<string, string> = {};
  for (const [name, text] of Object.entries(environment)) {
    if (pattern.test(name) && text !== undefined && text !== "") texts[name] = text;
  }
  return texts;
}

function madeDirectory(path: string): string {
  const directory = resolve(path);
  try {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
  } catch (error) {
    throw new Problem(`cannot make the state directory: ${messageOf(error)}`);
  }
  return directory;
}
