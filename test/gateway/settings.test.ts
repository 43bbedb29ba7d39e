import { describe, expect, it } from "vitest";
import { parseSettings } from "../../src/settings.ts";

const policyWith = (baseUrl: string, more: object = {}) =>
  JSON.stringify({
    version: 1,
    providers: { p: { dialect: "openai", baseUrl, apiKeySecret: "PROVIDER_P", ...more } },
    models: { m: { provider: "p", contextTokens: 1, maxOutputTokens: 1 } },
    routes: { default: {} },
    limits: [{ name: "t", kind: "bucket", unit: "tokens", capacity: 1, refillPerMinute: 1 }],
  });

const envWith = (more: object) =>
  ({ WEIR_KEY_SECRET: "s".repeat(32), PROVIDER_P: "sk", ...more }) as unknown as Cloudflare.Env;

async function problemsOf(more: object): Promise<readonly string[]> {
  const parsed = await parseSettings(envWith(more));
  return parsed.ok ? [] : parsed.problems;
}

describe("settings", () => {
  it("take the policy as text or as an object, and name its content", async () => {
    const text = policyWith("https://api.example/v1");
    const [a, b] = [
      await parseSettings(envWith({ WEIR_POLICY: text })),
      await parseSettings(envWith({ WEIR_POLICY: JSON.parse(text) as unknown })),
    ];
    expect(a).toMatchObject({
      ok: true,
      settings: { policyHash: expect.stringMatching(/^[0-9a-f]{16}$/) as string },
    });
    expect(b).toEqual(a);
  });

  it("report every problem at once", async () => {
    const problems = await problemsOf({
      WEIR_KEY_SECRET: "short",
      PROVIDER_P: "",
      WEIR_POLICY: policyWith("http://10.0.0.1/v1"),
    });
    expect(problems).toHaveLength(3);
    expect(problems.join("\n")).toMatch(/WEIR_KEY_SECRET.*\n.*PROVIDER_P.*\n.*baseUrl/s);
    expect(await problemsOf({ WEIR_POLICY: "{" })).toHaveLength(1);
    expect(await problemsOf({ WEIR_POLICY: undefined })).not.toHaveLength(0);
  });

  it.each([
    "http://api.example/v1",
    "https://localhost/v1",
    "https://127.0.0.1/v1",
    "https://2130706433/v1",
    "https://0x7f.1/v1",
    "https://169.254.169.254/latest",
    "https://[::1]/v1",
    "https://[::ffff:127.0.0.1]/v1",
    "https://[fd00::1]/v1",
    "https://192.168.0.1/v1",
    "https://metadata.google.internal/v1",
  ])("SEC-01 a deployed worker is not pointed at %s", async (baseUrl) => {
    expect(await problemsOf({ WEIR_POLICY: policyWith(baseUrl) })).toHaveLength(1);
    expect(await problemsOf({ WEIR_POLICY: policyWith(baseUrl, { allowPrivate: true }) })).toEqual([]);
    expect(await problemsOf({ WEIR_POLICY: policyWith(baseUrl), WEIR_LOCAL: "1" })).toEqual([]);
  });

  it("let the epoch be given, or take the deployment's time", async () => {
    const WEIR_POLICY = policyWith("https://api.example/v1");
    expect(await parseSettings(envWith({ WEIR_POLICY, WEIR_POLICY_EPOCH: "7" }))).toMatchObject({
      settings: { policyEpoch: 7 },
    });
    const CF_VERSION_METADATA = { timestamp: "2026-11-30T00:00:00Z" };
    expect(await parseSettings(envWith({ WEIR_POLICY, CF_VERSION_METADATA }))).toMatchObject({
      settings: { policyEpoch: Date.parse(CF_VERSION_METADATA.timestamp) },
    });
  });
});
