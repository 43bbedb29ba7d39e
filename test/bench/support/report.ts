/** What every benchmark does with its figures. */
import { mkdirSync, writeFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { join } from "node:path";

const RESULTS = join(import.meta.dirname, "../results");

export interface Spread {
  readonly median: number;
  readonly least: number;
  readonly most: number;
}

export function spreadOf(values: readonly number[], round = 0): Spread {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (index: number) => Number((sorted[index] ?? Number.NaN).toFixed(round));
  return { median: at(Math.floor(sorted.length / 2)), least: at(0), most: at(sorted.length - 1) };
}

export const show = ({ median, least, most }: Spread, unit: string): string =>
  `${median} ${unit} (${least} to ${most})`;

/** Writes the raw figures beside those of the other benchmarks, with the machine they are of. */
export function keep(name: string, figures: object): void {
  const machine = { cpu: cpus()[0]?.model, cores: cpus().length, load: loadavg()[0], node: process.version };
  const report = { command: `npm run bench -- ${name}`, at: new Date().toISOString(), machine, ...figures };
  mkdirSync(RESULTS, { recursive: true });
  writeFileSync(join(RESULTS, `${name}.json`), `${JSON.stringify(report, null, 2)}\n`);
}

/** Says what must hold and whether it does; one that does not fails the run. */
export function must(what: string, holds: boolean): void {
  console.log(`${holds ? "ok" : "FAILED"}: ${what}`);
  if (!holds) process.exitCode = 1;
}
