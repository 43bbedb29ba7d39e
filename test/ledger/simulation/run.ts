/** `npm run sim -- [--seeds N] [--steps M] [--seed S]`: the ledger's world, over as many cores as there are. */
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { MUST_BE_SEEN, type Seen } from "./coverage.ts";
import { shrunk } from "./shrink.ts";
import { type Failure, run } from "./world.ts";

interface Share {
  readonly seeds: readonly number[];
  readonly steps: number;
}

type News = { readonly seed: number; readonly failure: Failure | null } | { readonly seen: Seen };

if (isMainThread) process.exitCode = await main();
else work(workerData as Share);

function work({ seeds, steps }: Share): void {
  const seen: Seen = {};
  for (const seed of seeds) {
    const failure = run({ seed, steps, seen });
    say({ seed, failure });
    if (failure !== null) break;
  }
  say({ seen });
}

function say(news: News): void {
  // A thread has no origin to name.
  // oxlint-disable-next-line unicorn/require-post-message-target-origin
  parentPort?.postMessage(news);
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      seeds: { type: "string", default: "50" },
      steps: { type: "string", default: "2000" },
      seed: { type: "string" },
    },
  });
  const steps = whole("--steps", values.steps);
  const seeds =
    values.seed === undefined
      ? Array.from({ length: whole("--seeds", values.seeds) }, (_, seed) => seed)
      : [whole("--seed", values.seed)];
  const startedAtMs = Date.now();
  const seen: Seen = {};
  const failures: { seed: number; failure: Failure }[] = [];
  let done = 0;
  const cores = Math.min(availableParallelism(), seeds.length);
  const shares = Array.from({ length: cores }, (_, core) =>
    seeds.filter((_seed, place) => place % cores === core),
  );
  await Promise.all(
    shares.map((share) =>
      runShare({ seeds: share, steps }, (news) => {
        if ("seen" in news)
          for (const [what, times] of Object.entries(news.seen)) seen[what] = (seen[what] ?? 0) + times;
        else {
          done += 1;
          if (news.failure !== null) failures.push({ seed: news.seed, failure: news.failure });
          else if (done % 25 === 0) console.log(`${done} of ${seeds.length} seeds`);
        }
      }),
    ),
  );
  const seconds = ((Date.now() - startedAtMs) / 1_000).toFixed(1);
  for (const { seed, failure } of failures.slice(0, 1)) tell(seed, shrunk(seed, failure));
  if (failures.length > 0) return 1;
  return report(seen, `${seeds.length} seeds x ${steps} steps in ${seconds} s`, values.seed === undefined);
}

function runShare(share: Share, hear: (news: News) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(fileURLToPath(import.meta.url), { workerData: share });
    worker.on("message", hear);
    worker.on("error", reject);
    worker.on("exit", () => resolve());
  });
}

function tell(seed: number, { what, history }: Failure): void {
  console.log(`\nseed ${seed} fails: ${what}\n`);
  for (const line of history.filter((each) => each.trim().split(" ").length > 2).slice(-60))
    console.log(line);
  console.log(`\nagain: npm run sim -- --seed ${seed}`);
}

function report(seen: Seen, ran: string, mustBeWhole: boolean): number {
  const missing = MUST_BE_SEEN.filter((what) => seen[what] === undefined);
  for (const what of MUST_BE_SEEN) console.log(`${what.padEnd(42)} ${String(seen[what] ?? 0).padStart(9)}`);
  console.log(`\n${ran}: clean. Seen ${MUST_BE_SEEN.length - missing.length} of ${MUST_BE_SEEN.length}.`);
  if (missing.length === 0 || !mustBeWhole) return 0;
  console.log(`Not seen, so nothing is proven of: ${missing.join(", ")}`);
  return 1;
}

function whole(name: string, value: string): number {
  const number = Number(value);
  if (!Number.isSafeInteger(number) || number < 0)
    throw new Error(`${name}: expected a whole number, got ${value}`);
  return number;
}
