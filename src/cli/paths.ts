/** Where the project's own files are, whatever directory a command is run from. */
import { fileURLToPath } from "node:url";

const fromRoot = (path: string): string => fileURLToPath(new URL(`../../${path}`, import.meta.url));

export const GATEWAY_ENTRY = fromRoot("src/worker.ts");
export const SIMULATOR_ENTRY = fromRoot("test/simulator/worker.ts");
export const DEMO_POLICY = fromRoot("src/cli/demo-policy.json");
export const WRANGLER_TOML = fromRoot("wrangler.toml");
export const STATE_HOME = fromRoot(".weir");
