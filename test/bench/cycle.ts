/**
 * A request through HTTP, worker and object and back, on `serve` and the built-in provider: how many a second
 * this machine carries, and how many rows each writes. `npm run bench -- cycle` prints it. Both figures are of
 * one process on one machine: the rows hold anywhere, the rate says nothing about any other place.
 */
import { setTimeout as pause } from "node:timers/promises";
import { readRecord } from "../support/record.ts";
import { limitOf, startStack, told } from "../support/stack.ts";
import { keep, must, show, spreadOf } from "./support/report.ts";

const IDLE_REQUESTS = 50;
const IDLE_ROWS_MAX = 2.1;
const CALLERS_AT_ONCE = 64;
const REQUESTS_AT_ONCE = 1_280;
const CROWD = 500;
const CROWD_TENANTS = ["crowd-1", "crowd-2"] as const;
/** Each tenant of the crowd may make so many requests, and its callers try for more. */
const CROWD_REQUESTS = 750;

const stack = await startStack({
  policy: {
    limits: [
      { name: "tokens", kind: "bucket", unit: "tokens", capacity: 1_000_000_000, refillPerMinute: 1 },
      { name: "requests", kind: "bucket", unit: "requests", capacity: 1_000_000, refillPerMinute: 1 },
      { name: "slots", kind: "gauge", unit: "concurrency", max: 1_000 },
    ],
    overrides: Object.fromEntries(
      CROWD_TENANTS.map((tenant) => [
        tenant,
        { requests: { capacity: CROWD_REQUESTS }, slots: { max: CROWD / CROWD_TENANTS.length } },
      ]),
    ),
  },
});
try {
  const idle = await idlePaced();
  const atOnce = await manyAtOnce();
  const crowd = await twoTenants();
  keep("cycle", { idle, atOnce, crowd });
} finally {
  await stack.stop();
}

async function settledCall(tenant: string, directives = "tokens=20"): Promise<number> {
  const response = await stack.request({ model: told(directives), stream: true }, { tenant });
  await response.text();
  return response.status;
}

/** Rows by the object's own count, once the last settlement is written. */
async function rowsOf(tenant: string): Promise<number> {
  for (;;) {
    const { inFlight } = await stack.balance(tenant);
    if (inFlight.requests === 0) return (await readRecord(stack.stateDir, tenant)).rowsWritten;
    await pause(10);
  }
}

/** One caller, whose answers take a third of a second: nobody to share a write with. */
async function idlePaced() {
  const tenant = "idle";
  await settledCall(tenant);
  const before = await rowsOf(tenant);
  const tookMs: number[] = [];
  for (let i = 0; i < IDLE_REQUESTS; i += 1) {
    const startedAtMs = performance.now();
    const status = await settledCall(tenant, "tokens=10&slow=30");
    if (status !== 200) throw new Error(`an idle request was answered with ${status}`);
    tookMs.push(performance.now() - startedAtMs);
    await pause(20);
  }
  const rowsPerRequest = ((await rowsOf(tenant)) - before) / IDLE_REQUESTS;
  const answers = spreadOf(tookMs);
  console.log(`one caller: ${IDLE_REQUESTS} requests, whose answers took ${show(answers, "ms")}`);
  must(
    `${rowsPerRequest.toFixed(3)} rows a request, at most ${IDLE_ROWS_MAX}`,
    rowsPerRequest <= IDLE_ROWS_MAX,
  );
  return { requests: IDLE_REQUESTS, answerMs: answers, rowsPerRequest };
}

async function manyAtOnce() {
  const tenant = "at-once";
  await settledCall(tenant);
  const before = await rowsOf(tenant);
  let left = REQUESTS_AT_ONCE;
  const startedAtMs = performance.now();
  await Promise.all(
    Array.from({ length: CALLERS_AT_ONCE }, async () => {
      while (left > 0) {
        left -= 1;
        const status = await settledCall(tenant);
        if (status !== 200) throw new Error(`a request was answered with ${status}`);
      }
    }),
  );
  const perSecond = Math.round(REQUESTS_AT_ONCE / ((performance.now() - startedAtMs) / 1_000));
  const rowsPerRequest = ((await rowsOf(tenant)) - before) / REQUESTS_AT_ONCE;
  console.log(`${CALLERS_AT_ONCE} callers: ${perSecond} requests/s on this machine`);
  must(`${rowsPerRequest.toFixed(3)} rows a request, below 1`, rowsPerRequest < 1);
  return { callers: CALLERS_AT_ONCE, requests: REQUESTS_AT_ONCE, perSecond, rowsPerRequest };
}

async function twoTenants() {
  const startedAtMs = performance.now();
  const counts = await Promise.all(
    CROWD_TENANTS.map(async (tenant) => {
      const admitted = await Promise.all(
        Array.from({ length: CROWD / CROWD_TENANTS.length }, async () => {
          for (let count = 0; ; count += 1) if ((await settledCall(tenant)) !== 200) return count;
        }),
      );
      return admitted.reduce((sum, count) => sum + count, 0);
    }),
  );
  const admitted = counts.reduce((sum, count) => sum + count, 0);
  const perSecond = Math.round(admitted / ((performance.now() - startedAtMs) / 1_000));
  console.log(`${CROWD} callers of ${CROWD_TENANTS.length} tenants: ${perSecond} requests/s on this machine`);
  let rows = 0;
  for (const [index, tenant] of CROWD_TENANTS.entries()) {
    rows += await rowsOf(tenant);
    const balance = await stack.balance(tenant);
    const requests = limitOf(balance, "requests");
    must(
      `${tenant}: ${counts[index]} admitted of ${CROWD_REQUESTS}, ${requests.settledTotal} booked, ${requests.held} held`,
      counts[index] === CROWD_REQUESTS && requests.settledTotal === CROWD_REQUESTS && requests.held === 0,
    );
    must(`${tenant}: no hold is lost`, limitOf(balance).held === 0 && limitOf(balance, "slots").held === 0);
  }
  const rowsPerRequest = rows / admitted;
  must(`${rowsPerRequest.toFixed(3)} rows a request, below 1`, rowsPerRequest < 1);
  return { callers: CROWD, tenants: CROWD_TENANTS.length, requests: admitted, perSecond, rowsPerRequest };
}
