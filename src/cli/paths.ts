/** Where the project's own files are, whatever directory a command is run from. */
import { join } from "node:path";

const fromRoot = (path: string): string => join(import.meta.dirname, "../..", path);

export const GATEWAY_ENTRY = fromRoot("src/worker.ts");
export const SIMULATOR_ENTRY = fromRoot("test/simulator/worker.ts");
export const DEMO_POLICY = fromRoot("src/cli/demo-policy.json");
export const WRANGLER_TOML = fromRoot("wrangler.toml");
export const STATE_HOME = fromRoot(".weir");

/** The packed vocabulary of an encoding. */
export const tableFile = (encoding: string): string => fromRoot(`src/tokens/tables/${encoding}.bin`);
