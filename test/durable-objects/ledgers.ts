/** Ledgers for the tests of this folder: each has an object of its own, for storage is shared within a file. */
import { runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { LedgerStore } from "../../durable-objects/ledger-store.ts";
import type { TenantLedger } from "../../durable-objects/tenant-ledger.ts";
import type { LeaseCommand, Reserve } from "../../src/ledger/commands.ts";
import type { LedgerState } from "../../src/ledger/state.ts";
import type { LedgerEvent, RecordedEvent } from "../../src/ledger/types.ts";
import type { Balance } from "../../src/ledger/view.ts";
import type { LedgerPolicy } from "../../src/policy/resolve.ts";
import { bucket, policyOf, reserveOf, slots, usage } from "../support/ledger.ts";

export type LedgerStub = DurableObjectStub<TenantLedger>;

/** As the worker sees it. */
export interface Session extends Disposable {
  reserve(command: Reserve): Promise<LedgerEvent>;
  granted(): Promise<LedgerEvent>;
  run(command: LeaseCommand): Promise<LedgerEvent>;
  keep(): Promise<void>;
}

export const TTL_MS = 10_000;

/** Nothing refills, so that every token is accounted for. */
export const policy = policyOf([bucket(10_000_000, 0), slots(100)], {
  leaseTtlMs: TTL_MS,
  reconcileAgeMaxMs: 60_000,
});

let named = 0;

export function newName(): string {
  named += 1;
  return `v1:tenant-${named}`;
}

export const stubOf = (name: string): LedgerStub => env.TENANT_LEDGER.getByName(name);

export async function freshLedger(name = newName(), set: LedgerPolicy = policy): Promise<LedgerStub> {
  const ledger = stubOf(name);
  await ledger.run({ type: "set_policy", policy: set });
  return ledger;
}

export const openSession = (ledger: LedgerStub): Session => ledger.open() as unknown as Session;

export const reserve = (requestId: string, more: Partial<Reserve> = {}): Reserve =>
  reserveOf(requestId, 100, 50, more);

export const settle = (requestId: string, outputTokens: number, fence = 1) =>
  ({ type: "settle", requestId, fence, usage: usage(100, outputTokens), basis: "under_estimate" }) as const;

export const capture = (requestId: string, usageEventId: string, outputTokens: number) =>
  ({ type: "capture", requestId, fence: 1, usageEventId, size: usage(100, outputTokens) }) as const;

export const running = (requestId: string) =>
  ({ type: "running", requestId, fence: 1, providerRequestId: `provider-${requestId}` }) as const;

export const levels = async (ledger: LedgerStub) => (await ledger.balance()).limits.map(({ level }) => level);

/** Without its instant, to be compared with another's. */
export const timeless = (balance: Balance): Balance => ({ ...balance, atMs: 0 });

export const inside = <T>(
  ledger: LedgerStub,
  look: (sql: SqlStorage, instance: TenantLedger, state: DurableObjectState) => T | Promise<T>,
): Promise<T> =>
  runInDurableObject(ledger, (instance: TenantLedger, state) => look(state.storage.sql, instance, state));

/** What a restart would find in the rows as they are now. */
export const recorded = (sql: SqlStorage): LedgerState => new LedgerStore(sql).load();

/** The rows of the ring, oldest first. */
export function rowsOf(sql: SqlStorage): RecordedEvent[][] {
  const rows = sql.exec<{ events: string }>("SELECT events FROM batch ORDER BY seq").toArray();
  return rows.map(({ events }) => JSON.parse(events) as RecordedEvent[]);
}

/** The object's bill so far, as its newest row tells it. */
export const billOf = (sql: SqlStorage): number =>
  sql.exec<{ rows: number }>("SELECT rows FROM batch ORDER BY seq DESC LIMIT 1").one().rows;

export const typesOf = (rows: readonly (readonly RecordedEvent[])[]): string[][] =>
  rows.map((row) => row.map(({ type }) => type));
