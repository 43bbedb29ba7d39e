/** From the environment to settings, once per isolate, with every problem reported at once. */
import { KEY_SECRET_CHARACTERS_MIN } from "./gateway/virtual-key.ts";
import type { Policy } from "./policy/schema.ts";
import { parsePolicy } from "./policy/schema.ts";

export interface Settings {
  readonly policy: Policy;
  readonly policyHash: string;
  readonly policyEpoch: number;
  readonly keySecret: string;
  /** By the name in `providers.*.apiKeySecret`; all that the policy names are there. */
  readonly providerSecrets: ReadonlyMap<string, string>;
  /** `serve` or `npm start`: not a deployment. */
  readonly local: boolean;
}

export type ParsedSettings =
  | { readonly ok: true; readonly settings: Settings }
  | { readonly ok: false; readonly problems: readonly string[] };

const parsedByEnv = new WeakMap<Cloudflare.Env, Promise<ParsedSettings>>();

export function settingsOf(env: Cloudflare.Env): Promise<ParsedSettings> {
  let parsed = parsedByEnv.get(env);
  if (parsed === undefined) {
    parsed = parseSettings(env);
    parsedByEnv.set(env, parsed);
  }
  return parsed;
}

export async function parseSettings(env: Cloudflare.Env): Promise<ParsedSettings> {
  const problems: string[] = [];
  const local = env.WEIR_LOCAL === "1";
  const keySecret = env.WEIR_KEY_SECRET ?? "";
  if (keySecret.length < KEY_SECRET_CHARACTERS_MIN) {
    problems.push(
      `WEIR_KEY_SECRET: expected at least ${KEY_SECRET_CHARACTERS_MIN} characters, received ${keySecret.length}`,
    );
  }
  const policy = readPolicy(env.WEIR_POLICY, problems);
  const providerSecrets = new Map<string, string>();
  for (const [name, provider] of Object.entries(policy?.providers ?? {})) {
    const secret = (env as unknown as Record<string, unknown>)[provider.apiKeySecret];
    if (typeof secret === "string" && secret !== "") providerSecrets.set(provider.apiKeySecret, secret);
    else problems.push(`${provider.apiKeySecret}: expected the secret of provider ${name}, received nothing`);
    const objection = local || provider.allowPrivate ? null : addressObjection(provider.baseUrl);
    if (objection !== null)
      problems.push(`WEIR_POLICY providers.${name}.baseUrl: ${objection}, received ${provider.baseUrl}`);
  }
  if (policy === null || problems.length > 0) return { ok: false, problems };
  const policyHash = await sha256(JSON.stringify(policy));
  return {
    ok: true,
    settings: { policy, policyHash, policyEpoch: epochOf(env), keySecret, providerSecrets, local },
  };
}

function readPolicy(value: unknown, problems: string[]): Policy | null {
  let raw = value;
  if (typeof value === "string") {
    try {
      raw = JSON.parse(value);
    } catch (error) {
      problems.push(`WEIR_POLICY: expected JSON, received ${String(error)}`);
      return null;
    }
  }
  const parsed = parsePolicy(raw);
  if (parsed.ok) return parsed.policy;
  for (const { path, expected, received } of parsed.issues) {
    problems.push(`WEIR_POLICY ${path}: expected ${expected}, received ${received}`);
  }
  return null;
}

/** What an operator may not point a deployed worker at: the secret would be sent there. */
function addressObjection(baseUrl: string): string | null {
  const { protocol, hostname } = new URL(baseUrl);
  if (protocol !== "https:") return `expected https (or "allowPrivate": true)`;
  const host = hostname.replace(/^\[|\]$/g, "");
  const privateHost =
    /^(localhost|.*\.localhost|.*\.internal|.*\.local)$/.test(host) ||
    /^(0|10|127)\.|^169\.254\.|^192\.168\.|^172\.(1[6-9]|2\d|3[01])\.|^100\.(6[4-9]|[7-9]\d|1[01]\d|12[0-7])\./.test(
      host,
    ) ||
    (host.includes(":") && !/^[23]/.test(host));
  return privateHost ? `expected a public address (or "allowPrivate": true)` : null;
}

function epochOf(env: Cloudflare.Env): number {
  const given = Number(env.WEIR_POLICY_EPOCH ?? Number.NaN);
  if (Number.isSafeInteger(given)) return given;
  const deployedAtMs = Date.parse(env.CF_VERSION_METADATA?.timestamp ?? "");
  return Number.isNaN(deployedAtMs) ? 0 : deployedAtMs;
}

async function sha256(text: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return Array.from(new Uint8Array(digest).subarray(0, 8), (byte) => byte.toString(16).padStart(2, "0")).join(
    "",
  );
}
