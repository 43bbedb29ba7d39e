/**
 * What the pure core costs a request, by how many leases are open beside it: a sweep, a reserve, a dispatch
 * and a settle against eight limits. `npm run bench -- core` prints it.
 */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { Command } from "../../src/ledger/commands.ts";
import { emptyState, type LedgerState } from "../../src/ledger/state.ts";
import { sweep, turn } from "../../src/ledger/turn.ts";
import type { Limit } from "../../src/policy/limit-schema.ts";
import {
  bucket,
  calendar,
  gauge,
  policyOf,
  requests,
  reserveOf,
  rolling,
  slots,
  usage,
} from "../support/ledger.ts";
import { keep, must, show, spreadOf } from "./support/report.ts";

const OPEN = [10, 1_000, 10_000] as const;
const ROUNDS = 15;
const CYCLES = 2_000;
const RATIO_MAX = 3;
const PLENTY = 1_000_000_000_000;

const LIMITS: readonly Limit[] = [
  bucket(PLENTY, 60_000, { name: "tokens" }),
  requests(PLENTY),
  slots(1_000_000),
  gauge("in_flight_tokens", PLENTY),
  calendar(PLENTY),
  rolling(PLENTY),
  bucket(PLENTY, 60_000, { name: "model-tokens", per: ["model"] }),
  bucket(PLENTY, 60_000, { name: "key-requests", per: ["key"], unit: "requests" }),
];

const price = { inputPicoUsd: 150_000, cachedInputPicoUsd: 75_000, outputPicoUsd: 600_000 };

class Ledger {
  readonly #state: LedgerState = emptyState();
  readonly #name: string;
  #nowMs = Date.UTC(2026, 10, 30);
  #made = 0;

  constructor(open: number) {
    this.#name = `ledger-of-${open}`;
    const policy = policyOf(LIMITS, { leaseTtlMs: 86_400_000 });
    this.#run({ type: "set_policy", policy });
    for (let i = 0; i < open; i += 1) this.#reserve();
  }

  /** All that a request asks of the core while it is admitted, sent and settled. */
  cycle(): void {
    this.#nowMs += 1;
    sweep(this.#state, this.#nowMs);
    const requestId = this.#reserve();
    this.#run({ type: "dispatch", requestId, fence: 1 });
    this.#run({ type: "settle", requestId, fence: 1, usage: usage(100, 40), basis: "exact" });
  }

  #reserve(): string {
    this.#made += 1;
    const requestId = `${this.#name}-${this.#made}`;
    this.#run(reserveOf(requestId, 100, 50, { price, dispatch: false }));
    return requestId;
  }

  #run(command: Command): void {
    const { reply } = turn(this.#state, command, this.#nowMs);
    if (reply.type === "refused" || reply.type === "unchanged")
      throw new Error(`${command.type}: ${JSON.stringify(reply)}`);
  }
}

function nsPerCycle(ledger: Ledger): number {
  const startedAt = process.hrtime.bigint();
  for (let i = 0; i < CYCLES; i += 1) ledger.cycle();
  return Number(process.hrtime.bigint() - startedAt) / CYCLES;
}

function heapBytesPerLease(leases: number): number {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const used = () => {
    collect();
    return process.memoryUsage().heapUsed;
  };
  const ledger = new Ledger(1);
  const before = used();
  const full = new Ledger(leases);
  const bytes = (used() - before) / leases;
  // Both live to here, or they would not have been counted.
  ledger.cycle();
  full.cycle();
  return Math.round(bytes);
}

const ledgers = OPEN.map((open) => ({ open, ledger: new Ledger(open), rounds: [] as number[] }));
// As many closed leases as are ever remembered, and code that is warm.
for (const { ledger } of ledgers) for (let i = 0; i < 11_000; i += 1) ledger.cycle();
for (let round = 0; round < ROUNDS; round += 1)
  for (const { ledger, rounds } of ledgers) rounds.push(nsPerCycle(ledger));

const cycles = ledgers.map(({ open, rounds }) => ({
  open,
  nsPerCycle: spreadOf(rounds),
  rounds: rounds.map(Math.round),
}));
for (const { open, nsPerCycle: spread } of cycles)
  console.log(`${open} open leases: ${show(spread, "ns a cycle")}`);
const medians = cycles.map(({ nsPerCycle: { median } }) => median);
const ratio = Number(((medians.at(-1) ?? Number.NaN) / (medians[0] ?? Number.NaN)).toFixed(2));
const heapBytes = heapBytesPerLease(10_000);
console.log(`${heapBytes} bytes of heap an open lease`);
must(
  `a cycle at 10,000 open leases costs ${ratio} times one at 10, at most ${RATIO_MAX}`,
  ratio <= RATIO_MAX,
);
keep("core", { limits: LIMITS.length, cyclesPerRound: CYCLES, cycles, ratio, heapBytesPerLease: heapBytes });
