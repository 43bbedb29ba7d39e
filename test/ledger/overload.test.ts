import { describe, expect, it } from "vitest";
import { nextWakeAtMs } from "../../src/ledger/waiting.ts";
import { bucket, slots } from "../support/ledger.ts";
import { ledgerWith, randomFrom } from "./steps.ts";

const QUOTA_PER_MINUTE = 60_000;
const MINUTES = 40;
const TIMES = 10;
const INPUT_TOKENS = 300;
const CEILING_TOKENS = 800;
const DEADLINE_MS = 10_000;

/** Calls arrive at ten times what the quota carries, and stay two to six seconds; time is a list of what is next. */
function overload() {
  const random = randomFrom(40);
  const ledger = ledgerWith({ leaseTtlMs: 60_000 }, bucket(QUOTA_PER_MINUTE, QUOTA_PER_MINUTE), slots(64));
  const startMs = ledger.nowMs;
  const endMs = startMs + MINUTES * 60_000;
  const outputTokens = () => Math.ceil(CEILING_TOKENS * (0.25 + random() / 2));
  const meanTokens = INPUT_TOKENS + CEILING_TOKENS / 2;
  const gapMs = (60_000 * meanTokens) / (TIMES * QUOTA_PER_MINUTE);
  const ends = new Map<string, { atMs: number; id: string }>();
  const seen = { arrived: 0, queueMost: 0, waitedMost: 0, codes: new Map<string, number>() };
  let read = ledger.record.length;
  let nextArrivalMs = startMs;

  const listen = () => {
    for (; read < ledger.record.length; read += 1) {
      const event = ledger.record[read];
      if (event?.type === "refused") seen.codes.set(event.code, (seen.codes.get(event.code) ?? 0) + 1);
      if (event?.type !== "reserved") continue;
      const id = event.requestId;
      seen.waitedMost = Math.max(seen.waitedMost, event.waitedMs);
      if (event.state === "RESERVED") ledger.run({ type: "dispatch", requestId: id, fence: 1 });
      ends.set(id, { id, atMs: ledger.nowMs + 2_000 + Math.floor(random() * 4_000) });
    }
    seen.queueMost = Math.max(seen.queueMost, ledger.state.queue.byId.size);
  };

  while (ledger.nowMs < endMs) {
    let end: { atMs: number; id: string } | null = null;
    for (const candidate of ends.values()) if (end === null || candidate.atMs < end.atMs) end = candidate;
    const wakeAtMs = nextWakeAtMs(ledger.state, ledger.nowMs) ?? Infinity;
    ledger.nowMs = Math.ceil(
      Math.max(ledger.nowMs, Math.min(nextArrivalMs, end?.atMs ?? Infinity, wakeAtMs)),
    );
    if (end !== null && end.atMs <= ledger.nowMs) {
      ends.delete(end.id);
      ledger.settle(end.id, INPUT_TOKENS, outputTokens());
    } else if (nextArrivalMs <= ledger.nowMs) {
      seen.arrived += 1;
      nextArrivalMs += -Math.log(1 - random()) * gapMs;
      ledger.reserve(`r${seen.arrived}`, INPUT_TOKENS, CEILING_TOKENS, { queueMs: DEADLINE_MS });
    } else ledger.sweep();
    listen();
  }
  const settledTokens = ledger.row().settledTotal;
  return { ...seen, ledger, settledTokens, share: settledTokens / (QUOTA_PER_MINUTE * MINUTES) };
}

describe("ten times the quota for forty minutes", () => {
  it("LIM-13 keeps the queue short, the goodput at the quota, and nobody past their deadline", () => {
    const { arrived, queueMost, waitedMost, codes, share, ledger } = overload();
    expect(arrived).toBeGreaterThan(TIMES * MINUTES * 80);
    expect(queueMost).toBeGreaterThan(5);
    expect(queueMost).toBeLessThanOrEqual(50);
    expect(waitedMost).toBeGreaterThan(1_000);
    expect(waitedMost).toBeLessThanOrEqual(DEADLINE_MS);
    // Measured: 102.2 % of the quota, of which 2.5 % is the bucket that was full when it began; the queue had 37 at most.
    expect(share).toBeGreaterThan(0.97);
    expect(share).toBeLessThanOrEqual(1 + 1 / MINUTES);
    // Nearly all that is too much is told so when it arrives, and does not wait for nothing.
    const late = codes.get("deadline_exceeded") ?? 0;
    const atOnce = codes.get("slo_infeasible") ?? 0;
    expect(atOnce).toBeGreaterThan(0.85 * arrived);
    expect(late).toBeLessThan(0.02 * arrived);
    expect(ledger.sameAsFold()).toBe(true);
  });
});
