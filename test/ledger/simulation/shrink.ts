/** From a run that failed to the shortest that still does, by leaving steps out. */
import type { Core } from "./object.ts";
import { type Failure, run } from "./world.ts";

const BUDGET_MS = 20_000;

export function shrunk(seed: number, failure: Failure, core?: Core): Failure {
  const startedAtMs = Date.now();
  const steps = failure.step + 1;
  const kind = kindOf(failure);
  const leftOut = new Set<number>();
  let shortest = failure;
  for (let chunk = steps >> 1; chunk >= 1; chunk >>= 1) {
    for (let from = 0; from < steps; from += chunk) {
      if (Date.now() - startedAtMs > BUDGET_MS) return shortest;
      const tried = new Set(leftOut);
      for (let step = from; step < from + chunk; step += 1) tried.add(step);
      if (tried.size === leftOut.size) continue;
      const still = run({ seed, steps, leftOut: tried, ...(core === undefined ? {} : { core }) });
      if (still === null || kindOf(still) !== kind) continue;
      shortest = still;
      for (const step of tried) leftOut.add(step);
    }
  }
  return shortest;
}

/** The words without the numbers: the same thing that is wrong. */
const kindOf = ({ what }: Failure): string =>
  what
    .slice(0, 90)
    .replace(/[\d"{}[\],.-]+/g, "")
    .slice(0, 32);
