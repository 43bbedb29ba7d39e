/** What several tests of the ledger do with it. */
import { waitersInOrder } from "../../src/ledger/waiting.ts";
import type { Limit } from "../../src/policy/limit-schema.ts";
import type { LedgerPolicy } from "../../src/policy/resolve.ts";
import { policyOf, TestLedger } from "../support/ledger.ts";

/** A policy of the next epoch, with these limits and nothing of the one before. */
export function change(ledger: TestLedger, limits: readonly Limit[], more: Partial<LedgerPolicy> = {}): void {
  const epoch = (ledger.state.policy?.epoch ?? 0) + 1;
  ledger.run({ type: "set_policy", policy: policyOf(limits, { hash: `p${epoch}`, epoch, ...more }) });
}

/** A ledger whose policy differs from the usual in more than its limits. */
export function ledgerWith(more: Partial<LedgerPolicy>, ...limits: readonly Limit[]): TestLedger {
  const ledger = new TestLedger();
  change(ledger, limits, more);
  return ledger;
}

/** Who waits, in the order in which they are served. */
export const waiting = (ledger: TestLedger): string[] =>
  [...waitersInOrder(ledger.state)].map(({ requestId }) => requestId);

/** Who was let in so far, in that order. */
export const admitted = (ledger: TestLedger): string[] =>
  ledger.record.flatMap((event) => (event.type === "reserved" ? [event.requestId] : []));

/** Numbers from 0 to 1, the same each time. */
export function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}
