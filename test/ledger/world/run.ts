/**
 * `npm run sim -- [--seeds N] [--steps M] [--seed S]`: so many worlds of so many steps, or the one of a seed again.
 * The worlds are shared out among the processors; what breaks is cut down to the shortest history that still does.
 */
import { availableParallelism } from "node:os";
import { parseArgs } from "node:util";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { Coverage } from "./coverage.ts";
import { history } from "./history.ts";
import { shrink } from "./shrink.ts";
import { runWorld } from "./world.ts";

interface Share {
  readonly seeds: readonly number[];
  readonly steps: number;
}

interface Report {
  readonly seed: number;
  readonly counts: ReadonlyMap<string, number>;
  readonly broken: { readonly message: string; readonly history: string } | null;
}

const BROKEN_MAX = 3;

function explore({ seeds, steps }: Share, report: (report: Report) => void): void {
  for (const seed of seeds) {
    const coverage = new Coverage();
    const failure = runWorld(seed, steps, coverage);
    const told = failure === null ? null : history(shrink(failure.deeds, failure.rule));
    const broken = failure === null || told === null ? null : { message: failure.message, history: told };
    report({ seed, counts: coverage.counts, broken });
  }
}

/** Settled once every share is done, or enough has broken. */
async function shareOut(
  seeds: readonly number[],
  steps: number,
  hear: (report: Report) => boolean,
): Promise<void> {
  const hands = Math.min(availableParallelism(), seeds.length);
  await Promise.all(
    Array.from({ length: hands }, (_, hand) => {
      const share: Share = { seeds: seeds.filter((_seed, index) => index % hands === hand), steps };
      const worker = new Worker(import.meta.filename, { workerData: share });
      return new Promise<void>((resolve, reject) => {
        worker.on("message", (report: Report) => {
          if (!hear(report)) void worker.terminate();
        });
        worker.on("error", reject);
        worker.on("exit", () => resolve());
      });
    }),
  );
}

async function main(): Promise<void> {
  const number = (text: string, name: string): number => {
    if (!/^\d+$/.test(text)) throw new Error(`--${name} ${text}: a whole number is needed`);
    return Number(text);
  };
  const { values } = parseArgs({
    options: {
      seeds: { type: "string", default: "50" },
      steps: { type: "string", default: "2000" },
      seed: { type: "string" },
    },
  });
  const steps = number(values.steps, "steps");
  const seeds =
    values.seed === undefined
      ? Array.from({ length: number(values.seeds, "seeds") }, (_, seed) => seed)
      : [number(values.seed, "seed")];
  const beganMs = performance.now();
  const coverage = new Coverage();
  let done = 0;
  let broken = 0;
  await shareOut(seeds, steps, (report) => {
    done += 1;
    coverage.add(report.counts);
    if (report.broken !== null && broken < BROKEN_MAX) {
      broken += 1;
      console.log(`\nseed ${report.seed} broke: ${report.broken.message}\n\n${report.broken.history}\n`);
      console.log(`again: npm run sim -- --seed ${report.seed} --steps ${steps}`);
    }
    if (done % 20 === 0) console.log(`${done} of ${seeds.length} worlds`);
    return broken < BROKEN_MAX;
  });
  console.log(coverage.table());
  const seconds = ((performance.now() - beganMs) / 1_000).toFixed(1);
  const missing = coverage.missing();
  console.log(`\n${done} worlds of ${steps} steps in ${seconds} s: ${broken} broken`);
  if (missing.length > 0) console.log(`never seen: ${missing.join(", ")}`);
  // One world does not see everything.
  if (broken > 0 || (missing.length > 0 && seeds.length > 1)) process.exitCode = 1;
}

if (isMainThread) await main();
else
  explore(workerData as Share, (report) => {
    // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread is no window
    parentPort?.postMessage(report);
  });
