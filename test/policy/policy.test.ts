import { describe, expect, it } from "vitest";
import {
  lowestClass,
  perRequestMaxTokens,
  resolveModel,
  resolveRoute,
  resolveTenant,
} from "../../src/policy/resolve.ts";
import { type Policy, parsePolicy } from "../../src/policy/schema.ts";

type Json = Record<string, unknown>;

const good = (): Json => ({
  version: 1,
  providers: {
    openai: { dialect: "openai", baseUrl: "https://api.openai.com/v1", apiKeySecret: "PROVIDER_OPENAI_KEY" },
  },
  models: {
    "gpt-4o-mini": { provider: "openai", contextTokens: 128_000, maxOutputTokens: 16_384, aliases: ["mini"] },
  },
  routes: { default: {}, long: { perRequestMaxFraction: 0.5, class: "batch" } },
  limits: [
    { name: "tenant-tokens", kind: "bucket", unit: "tokens", capacity: 1_000, refillPerMinute: 1_000 },
    { name: "tenant-slots", kind: "gauge", unit: "concurrency", max: null },
  ],
  tenants: { acme: { overrides: { "tenant-tokens": { capacity: 100 } } }, "*": {} },
});

function policyOf(document: Json = good()): Policy {
  const parsed = parsePolicy(document);
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  return parsed.policy;
}

function issuesOf(document: unknown): string[] {
  const parsed = parsePolicy(document);
  return parsed.ok
    ? []
    : parsed.issues.map(({ path, expected, received }) => `${path} | ${expected} | ${received}`);
}

/** The document with one member set, by dotted path. */
function edited(path: string, value: unknown): Json {
  const document = good();
  const names = path.split(".");
  const last = names.pop() ?? "";
  let at: Json = document;
  for (const name of names) at = at[name] as Json;
  at[last] = value;
  return document;
}

describe("the policy document", () => {
  it("fills in what may be left out", () => {
    expect(policyOf()).toMatchObject({
      leaseTtlMs: 180_000,
      reconcileAgeMaxMs: 900_000,
      routes: {
        default: { class: "interactive", injectMaxOutputTokens: false, reservation: { mode: "worst_case" } },
      },
      providers: {
        openai: { streamOptions: true, outputCeilingMember: "max_completion_tokens", pool: null },
      },
    });
  });

  it.each([
    ["version", 2],
    ["models.gpt-4o-mini.contextTokens", 0],
    ["models.gpt-4o-mini.maxOutputTokens", "many"],
    ["providers.openai.apiKeySecret", "WEIR_KEY_SECRET"],
    ["providers.openai.baseUrl", "https://api.openai.com@evil.example/v1"],
    ["providers.openai.baseUrl", "file:///etc/passwd"],
    ["limits.0.capacity", -7],
    ["limits.0.refillPerMinute", Number.POSITIVE_INFINITY],
    ["limits.0.refillPerMinute", "60"],
    ["limits.0.capacity", 1.5],
    ["limits.0.batchFloor", 2],
    ["limits.1.max", 1e10],
    ["leaseTtlMs", 10],
  ])("LIM-18 names the member: %s", (path, value) => {
    expect(issuesOf(edited(path, value))[0]).toContain(path);
  });

  it.each([
    ["pools", {}],
    ["routes.default.reservation", { mode: "quantile" }],
    ["providers.openai.pool", "openai-main"],
  ])("refuses what this version does not enforce, instead of ignoring it: %s", (path, value) => {
    expect(issuesOf(edited(path, value))[0]).toContain(path);
  });

  it.each([
    ["limits.0.per", ["tenant", "planet"]],
    ["limits.0.per", ["model", "model"]],
    ["limits.0.capacity", 1_000_000_001],
    ["limits.0.cachedInputWeight", 1.5],
    ["routes.default.queueDeadlineMs", 0],
    ["queue", { lengthMax: -1 }],
    ["reconcileCharge", "forgive"],
  ])("LIM-18 refuses nonsense: %s %j", (path, value) => {
    expect(issuesOf(edited(path, value))[0]).toMatch(new RegExp(`^${path.replaceAll(".", "\\.")}`));
  });

  it.each([
    [{ kind: "gauge", unit: "concurrency", max: "auto" }, "allowancePerMinute"],
    [{ kind: "gauge", unit: "concurrency", max: 5, allowancePerMinute: 60 }, "allowancePerMinute"],
    [{ kind: "window", unit: "tokens", capacity: 5, every: "fortnight" }, "every"],
    [{ kind: "window", unit: "tokens", capacity: 5, every: "day", timeZone: "Mars/Olympus" }, "timeZone"],
    [{ kind: "rolling", unit: "concurrency", capacity: 5 }, "unit"],
  ])("refuses a limit of which a number is missing or means nothing: %j", (limit, member) => {
    expect(issuesOf(edited("limits.0", { name: "odd", ...limit })).join()).toContain(member);
  });

  it("takes every kind, unit and scope that the ledger knows", () => {
    const document = edited("tenants", {});
    document["limits"] = [
      {
        name: "a",
        kind: "bucket",
        unit: "input_tokens",
        capacity: 5,
        refillPerMinute: 5,
        per: ["model", "key"],
      },
      { name: "b", kind: "gauge", unit: "in_flight_tokens", max: "auto", allowancePerMinute: 600 },
      {
        name: "c",
        kind: "window",
        unit: "output_tokens",
        capacity: 5,
        every: "month",
        timeZone: "Europe/Berlin",
      },
      { name: "d", kind: "rolling", unit: "requests", capacity: null, per: ["user"] },
      { name: "e", kind: "bucket", unit: "tokens", capacity: 0, refillPerMinute: 0, cachedInputWeight: 0.1 },
    ];
    expect(issuesOf(document)).toEqual([]);
  });

  it("lets no limit count money where a model has no price", () => {
    const document = edited("models.free", { provider: "openai", contextTokens: 10, maxOutputTokens: 10 });
    document["limits"] = [{ name: "spend", kind: "window", unit: "nano_usd", capacity: 5, every: "day" }];
    expect(issuesOf(document).join()).toContain("models.free.price");
  });

  it("reports every problem at once", () => {
    const document = edited("limits.0.capacity", -7);
    (document["providers"] as Json)["openai"] = { dialect: "telepathy" };
    document["leaseTtlMs"] = "long";
    expect(issuesOf(document).map((issue) => issue.split(" ")[0])).toEqual(
      expect.arrayContaining([
        "providers.openai.dialect",
        "providers.openai.baseUrl",
        "limits.0.capacity",
        "leaseTtlMs",
      ]),
    );
  });

  it("checks references: providers, limit names, aliases that two models claim", () => {
    const document = edited("models.other", {
      provider: "nobody",
      contextTokens: 1,
      maxOutputTokens: 1,
      aliases: ["MINI"],
    });
    (document["tenants"] as Json)["beta"] = {
      overrides: { "no-such": { capacity: 1 }, "tenant-slots": { capacity: 1 } },
    };
    const issues = issuesOf(document).join("\n");
    expect(issues).toMatch(/models\.other\.provider/);
    expect(issues).toMatch(/models\.other \| a name that only one model bears/);
    expect(issues).toMatch(/tenants\.beta\.overrides\.no-such/);
    expect(issues).toMatch(/tenants\.beta\.overrides\.tenant-slots\.capacity/);
  });

  it.each([null, 7, "x", [], {}])("is never an exception: %j", (document) => {
    expect(issuesOf(document).length).toBeGreaterThan(0);
  });
});

describe("what one tenant and request get", () => {
  it("LIM-03 a tenant gets its own numbers, an unlisted one those of *, and without * nothing", () => {
    const policy = policyOf();
    expect(resolveTenant(policy, "acme", "h", 1)?.limits[0]).toMatchObject({
      capacity: 100,
      refillPerMinute: 1_000,
    });
    expect(resolveTenant(policy, "beta", "h", 1)?.limits[0]).toMatchObject({ capacity: 1_000 });
    expect(resolveTenant(policyOf(edited("tenants", { acme: {} })), "beta", "h", 1)).toBeNull();
    expect(resolveTenant(policyOf(edited("tenants", { acme: {} })), "constructor", "h", 1)).toBeNull();
  });

  it.each([
    ["gpt-4o-mini", "gpt-4o-mini"],
    [" GPT-4o-Mini ", "gpt-4o-mini"],
    ["mini", "gpt-4o-mini"],
    ["ft:gpt-4o-mini:acme:suffix:AbC123", "gpt-4o-mini"],
    ["mini:ft-personal:x-2023-05-23", "gpt-4o-mini"],
    ["gpt-9-ultra", null],
    ["__proto__", null],
  ])("TOK-06 resolves %j to %j", (written, id) => {
    expect(resolveModel(policyOf(), written)?.id ?? null).toBe(id);
  });

  it("TOK-07 an unknown model is taken by *, marked as estimated", () => {
    const policy = policyOf(
      edited("models.*", { provider: "openai", contextTokens: 8_000, maxOutputTokens: 4_000 }),
    );
    expect(resolveModel(policy, "gpt-9-ultra")).toMatchObject({ id: "*", estimated: true });
    expect(resolveModel(policy, "gpt-4o-mini")).toMatchObject({ estimated: false });
  });

  it("a route is found by its own name only", () => {
    expect(resolveRoute(policyOf(), "long")).toMatchObject({ class: "batch" });
    expect(resolveRoute(policyOf(), "toString")).toBeNull();
  });

  it("a class is lowered by whoever asks, and raised by nobody", () => {
    expect(lowestClass("interactive", "batch", undefined)).toBe("batch");
    expect(lowestClass("batch", "interactive", "interactive")).toBe("batch");
    expect(lowestClass("interactive", "interactive", undefined)).toBe("interactive");
  });

  it("seed 000: the per-request ceiling is a fraction of the smallest tokens bucket", () => {
    const policy = policyOf();
    const limits = resolveTenant(policy, "acme", "h", 1)?.limits ?? [];
    expect(perRequestMaxTokens(policy.routes["long"] ?? policy.routes.default, limits)).toBe(50);
    expect(perRequestMaxTokens(policy.routes.default, limits)).toBeNull();
  });
});
