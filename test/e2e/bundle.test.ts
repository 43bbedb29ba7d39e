import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { deploymentBundle, measureStartup } from "../bench/startup.ts";

const MIB = 2 ** 20;
/** The platform allows 64 MiB uncompressed; nearly all of ours are two vocabularies. */
const BUNDLE_BYTES_MAX = 8 * MIB;
/** The platform allows a second. */
const STARTUP_CPU_MS_MAX = 200;

const outdir = mkdtempSync(join(tmpdir(), "weir-bundle-"));
let bundle: string;

beforeAll(async () => {
  bundle = await deploymentBundle(outdir);
});
afterAll(() => rmSync(outdir, { recursive: true, force: true }));

it("PLA-12 the deployment is small and starts fast", async () => {
  const { bundleBytes, evaluationCpuMs } = await measureStartup(bundle, 5);
  console.log(`${(bundleBytes / MIB).toFixed(2)} MiB, evaluated in ${evaluationCpuMs} ms of CPU`);
  expect(bundleBytes).toBeLessThan(BUNDLE_BYTES_MAX);
  expect(evaluationCpuMs).toBeLessThan(STARTUP_CPU_MS_MAX);
});

it("the deployment needs none of Node's modules", () => {
  expect(readFileSync(bundle, "utf8")).not.toMatch(/(?:from|import)\s*\(?\s*["']node:/);
});
