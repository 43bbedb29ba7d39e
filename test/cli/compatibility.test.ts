import { expect, it } from "vitest";
import { readCompatibility } from "../../src/cli/compatibility.ts";
import { workerdConfig } from "../../src/cli/workerd.ts";

it("plain workerd gets the date and flags of the deployment", () => {
  const { date, flags } = readCompatibility();
  expect(date).toMatch(/^\d{4}-\d\d-\d\d$/);
  expect(flags).toContain("enable_request_signal");
});

it("a wrangler.toml that states them otherwise is an error, not a default", () => {
  expect(() => readCompatibility(`compatibility_date = "2026-10-20"`)).toThrow(/compatibility_flags/);
});

it("the runtime's configuration names bindings and holds none of their values", () => {
  const service = {
    entry: "worker.ts",
    host: "127.0.0.1",
    port: 0,
    bindings: { PROVIDER_A_KEY: "sk-secret" },
  };
  const config = workerdConfig(service, { date: "2026-10-20", flags: ["a_flag"] }, ["a.bin"]);
  expect(config).toContain(`(name = "PROVIDER_A_KEY", fromEnvironment = "PROVIDER_A_KEY")`);
  expect(config).toContain(`compatibilityFlags = ["a_flag"]`);
  expect(config).toContain(`(name = "a.bin", data = embed "a.bin")`);
  expect(config).not.toContain("sk-secret");
});
