/** Command-line options: `--name value` only, each unknown or malformed one a clear line. */
import { parseArgs } from "node:util";
import { messageOf, Problem } from "./problem.ts";

/** The values of the named options; all are texts and all may be absent. */
export function readOptions<Name extends string>(names: readonly Name[]): { readonly [N in Name]?: string } {
  const options = Object.fromEntries(names.map((name) => [name, { type: "string" as const }]));
  try {
    return parseArgs({ args: process.argv.slice(2), options }).values as { readonly [N in Name]?: string };
  } catch (error) {
    // Node adds advice on positional arguments, of which there are none here.
    const [complaint = "bad arguments"] = messageOf(error).split(/\. |\.$| This command/);
    const known = names.map((name) => `--${name}`).join(", ");
    throw new Problem(`${complaint} (known options: ${known})`);
  }
}

export function requiredOption(name: string, value: string | undefined): string {
  if (value === undefined || value === "") throw new Problem(`--${name} is required`);
  return value;
}

/** Port 0 lets the system choose. */
export function readPort(name: string, text: string): number {
  const port = Number(text);
  if (!/^\d+$/.test(text) || port > 65_535) {
    throw new Problem(`${name} must be a port number from 0 to 65535, not "${text}"`);
  }
  return port;
}

const UNIT_MS = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

/** `90s`, `15m`, `12h` or `30d`. */
export function readDurationMs(name: string, text: string): number {
  const [, count, unit] = /^([1-9]\d{0,5})([smhd])$/.exec(text) ?? [];
  if (count === undefined || unit === undefined) {
    throw new Problem(`${name} must be a duration such as 90s, 15m, 12h or 30d, not "${text}"`);
  }
  return Number(count) * UNIT_MS[unit as keyof typeof UNIT_MS];
}
