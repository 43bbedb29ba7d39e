/** The runtime's date and flags, told once, in wrangler.toml: plain workerd must behave as the deployment does. */
import { readFileSync } from "node:fs";
import { WRANGLER_TOML } from "./paths.ts";

export interface Compatibility {
  readonly date: string;
  readonly flags: readonly string[];
}

export function readCompatibility(toml = readFileSync(WRANGLER_TOML, "utf8")): Compatibility {
  const date = /^compatibility_date = "([\d-]+)"$/m.exec(toml)?.[1];
  const flags = /^compatibility_flags = \[([^\]]*)\]$/m.exec(toml)?.[1];
  if (date === undefined || flags === undefined) {
    throw new Error("wrangler.toml must state compatibility_date and compatibility_flags, each on one line");
  }
  return { date, flags: [...flags.matchAll(/"([a-z0-9_]+)"/g)].map(([, flag = ""]) => flag) };
}
