/** A ledger for tests: time is a variable, and every turn is checked against the fold of its own record. */

import type { Command, Reserve } from "../../src/ledger/commands.ts";
import { evolve } from "../../src/ledger/evolve.ts";
import { snapshot } from "../../src/ledger/snapshot.ts";
import { emptyState, type LedgerState } from "../../src/ledger/state.ts";
import { sweep, turn } from "../../src/ledger/turn.ts";
import { isRecorded, type LedgerEvent, type RecordedEvent, type Usage } from "../../src/ledger/types.ts";
import { balanceOf, type LimitRow } from "../../src/ledger/view.ts";
import type {
  BucketSpec,
  GaugeSpec,
  Limit,
  RollingSpec,
  Scope,
  WindowSpec,
} from "../../src/policy/limit-schema.ts";
import type { LedgerPolicy } from "../../src/policy/resolve.ts";

export const bucket = (
  capacity: number,
  refillPerMinute: number,
  more: Partial<BucketSpec> = {},
): BucketSpec => ({
  name: "tenant-tokens",
  per: ["tenant"],
  kind: "bucket",
  unit: "tokens",
  capacity,
  refillPerMinute,
  batchFloor: 0,
  cachedInputWeight: 1,
  ...more,
});

export const gauge = (
  unit: GaugeSpec["unit"],
  max: GaugeSpec["max"],
  more: Partial<GaugeSpec> = {},
): GaugeSpec => ({
  name: unit,
  per: ["tenant"],
  kind: "gauge",
  unit,
  max,
  allowancePerMinute: null,
  headroom: 0.8,
  ...more,
});

export const slots = (max: number | null): GaugeSpec => gauge("concurrency", max, { name: "tenant-slots" });

export const requests = (capacity: number): BucketSpec =>
  bucket(capacity, capacity, { name: "tenant-requests", unit: "requests" });

export const calendar = (capacity: number, more: Partial<WindowSpec> = {}): WindowSpec => ({
  name: "spend",
  per: ["tenant"],
  kind: "window",
  unit: "nano_usd",
  capacity,
  every: "day",
  timeZone: "UTC",
  stop: "hold",
  alerts: [],
  cachedInputWeight: 1,
  ...more,
});

export const rolling = (capacity: number, more: Partial<RollingSpec> = {}): RollingSpec => ({
  name: "rolling-tokens",
  per: ["tenant"],
  kind: "rolling",
  unit: "tokens",
  capacity,
  cachedInputWeight: 1,
  ...more,
});

export const scope: Scope = {
  class: "interactive",
  route: "default",
  model: "m",
  pool: "",
  key: "k",
  user: "",
};

export function policyOf(limits: readonly Limit[], more: Partial<LedgerPolicy> = {}): LedgerPolicy {
  return {
    hash: "p1",
    epoch: 1,
    limits,
    queue: { lengthMax: 256, tokensMax: null },
    leaseTtlMs: 10_000,
    reconcileAgeMaxMs: 60_000,
    reconcileCharge: "charge_hold",
    ...more,
  };
}

export const usage = (inputTokens: number, outputTokens: number): Usage => ({
  inputTokens,
  outputTokens,
  cachedInputTokens: 0,
  cacheWriteTokens: 0,
  reasoningTokens: 0,
});

/** A reserve command that asks for little more than its size. */
export const reserveOf = (
  requestId: string,
  inputTokens: number,
  maxOutputTokens: number,
  more: Partial<Reserve> = {},
): Reserve => ({
  type: "reserve",
  requestId,
  policyHash: "p1",
  policyEpoch: 1,
  scope,
  class: "interactive",
  inputTokens,
  counted: null,
  maxOutputTokens,
  outputDeclared: true,
  price: null,
  perRequestMaxTokens: null,
  dispatch: true,
  queueMs: null,
  idempotency: null,
  ...more,
});

export class TestLedger {
  readonly state: LedgerState = emptyState();
  readonly record: RecordedEvent[] = [];
  nowMs = 1_000_000;

  constructor(...limits: readonly Limit[]) {
    this.run({ type: "set_policy", policy: policyOf(limits) });
  }

  run(command: Command): LedgerEvent {
    const { events, reply } = turn(this.state, command, this.nowMs);
    this.#keep(events);
    return reply;
  }

  sweep(): LedgerEvent[] {
    const events = sweep(this.state, this.nowMs);
    this.#keep(events);
    return events;
  }

  reserve(
    requestId: string,
    inputTokens: number,
    maxOutputTokens: number,
    more: Partial<Reserve> = {},
  ): LedgerEvent {
    const { hash: policyHash = "", epoch: policyEpoch = 0 } = this.state.policy ?? {};
    return this.run(reserveOf(requestId, inputTokens, maxOutputTokens, { policyHash, policyEpoch, ...more }));
  }

  settle(
    requestId: string,
    inputTokens: number,
    outputTokens: number,
    basis: "exact" | "under_estimate" = "exact",
    fence = 1,
  ): LedgerEvent {
    return this.run({ type: "settle", requestId, fence, usage: usage(inputTokens, outputTokens), basis });
  }

  row(name = "tenant-tokens"): LimitRow {
    const row = balanceOf(this.state, "acme").limits.find((limit) => limit.name === name);
    if (row === undefined) throw new Error(`no limit ${name}`);
    return row;
  }

  level(name = "tenant-tokens"): number {
    return this.row(name).level ?? Number.NaN;
  }

  /** The record without the refusals in it, which move nothing. */
  moves(): RecordedEvent[] {
    return this.record.filter(({ type }) => type !== "refused");
  }

  tick(ms: number): void {
    this.nowMs += ms;
  }

  /** What a restart would find. */
  folded(): LedgerState {
    const state = emptyState();
    for (const event of this.record) evolve(state, JSON.parse(JSON.stringify(event)) as RecordedEvent);
    return state;
  }

  sameAsFold(): boolean {
    const strip = (state: LedgerState) => ({ ...snapshot(state), nowMs: 0 });
    return JSON.stringify(strip(this.state)) === JSON.stringify(strip(this.folded()));
  }

  #keep(events: readonly LedgerEvent[]): void {
    for (const event of events) if (isRecorded(event)) this.record.push(event);
  }
}
