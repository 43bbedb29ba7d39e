/** A ledger for tests: time is a variable, and every turn is checked against the fold of its own record. */
import { evolve } from "../../src/ledger/evolve.ts";
import { snapshot } from "../../src/ledger/snapshot.ts";
import { emptyState, type LedgerState } from "../../src/ledger/state.ts";
import { sweep, turn } from "../../src/ledger/turn.ts";
import {
  type Command,
  isRecorded,
  type LedgerEvent,
  type RecordedEvent,
  type Reserve,
  type Usage,
} from "../../src/ledger/types.ts";
import { balanceOf, type LimitRow } from "../../src/ledger/view.ts";
import type { LedgerPolicy } from "../../src/policy/resolve.ts";
import type { Limit } from "../../src/policy/schema.ts";

export const bucket = (
  capacity: number,
  refillPerMinute: number,
  more: Partial<Extract<Limit, { kind: "bucket" }>> = {},
): Limit => ({
  name: "tenant-tokens",
  per: ["tenant"],
  kind: "bucket",
  unit: "tokens",
  capacity,
  refillPerMinute,
  batchFloor: 0,
  ...more,
});

export const slots = (max: number | null): Limit => ({
  name: "tenant-slots",
  per: ["tenant"],
  kind: "gauge",
  unit: "concurrency",
  max,
});

export const requests = (capacity: number): Limit =>
  bucket(capacity, capacity, { name: "tenant-requests", unit: "requests" });

export function policyOf(limits: readonly Limit[], more: Partial<LedgerPolicy> = {}): LedgerPolicy {
  return { hash: "p1", epoch: 1, limits, leaseTtlMs: 10_000, reconcileAgeMaxMs: 60_000, ...more };
}

export const usage = (inputTokens: number, outputTokens: number): Usage => ({
  inputTokens,
  outputTokens,
  cachedInputTokens: 0,
  cacheWriteTokens: 0,
  reasoningTokens: 0,
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
    return this.run({
      type: "reserve",
      requestId,
      policyHash: this.state.policy?.hash ?? "",
      policyEpoch: this.state.policy?.epoch ?? 0,
      route: "default",
      model: "m",
      class: "interactive",
      keyId: "k",
      inputTokens,
      maxOutputTokens,
      outputDeclared: true,
      perRequestMaxTokens: null,
      dispatch: true,
      ...more,
    });
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
    return this.row(name).level;
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
