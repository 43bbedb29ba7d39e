/** Two tenants, and five hundred callers at once who want more than there is. */
import { afterAll, beforeAll, expect, it } from "vitest";
import { sweep } from "../../src/ledger/turn.ts";
import { balanceOf } from "../../src/ledger/view.ts";
import type { RequestRecord } from "../simulator/journal.ts";
import { foldedRecord } from "../support/record.ts";
import { soon } from "../support/soon.ts";
import { limitOf, type Stack, startStack } from "../support/stack.ts";

const TENANTS = ["acme", "globex"] as const;
const CALLERS = 250;
/** Of each tenant, and both below what its callers would take. */
const REQUESTS = 400;
const SLOTS = 60;
const TOKENS = 1_000_000;

let stack: Stack;

beforeAll(async () => {
  stack = await startStack({
    policy: {
      route: { onCapacity: "queue", queueDeadlineMs: 4_000 },
      limits: [
        { name: "tokens", kind: "bucket", unit: "tokens", capacity: TOKENS, refillPerMinute: 1 },
        { name: "requests", kind: "bucket", unit: "requests", capacity: REQUESTS, refillPerMinute: 1 },
        { name: "slots", kind: "gauge", unit: "concurrency", max: SLOTS },
      ],
    },
    simulator: { SIM_FIRST_TOKEN_MS: "30", SIM_TOKEN_MS: "1", SIM_OUTPUT_MEDIAN: "40" },
  });
});
afterAll(() => stack?.stop());

interface Refusal {
  readonly weir: { readonly code: string; readonly limit: string | null };
}

/** Calls until the tenant's requests are used up; how many got through. */
async function caller(tenant: string, number: number): Promise<number> {
  for (let admitted = 0; ; ) {
    const body = {
      stream: number % 2 === 0,
      messages: [{ role: "user", content: `${tenant}: caller ${number} asks for the ${admitted}th time` }],
    };
    const response = await stack.request(body, { tenant });
    const text = await response.text();
    if (response.status === 200) {
      admitted += 1;
      continue;
    }
    const { weir } = JSON.parse(text) as Refusal;
    if (weir.limit === "requests") return admitted;
    // More stand in line than may, or for longer: this one comes again.
    expect(weir.code).toMatch(/^(queue_full|slo_infeasible|deadline_exceeded|concurrency_exhausted)$/);
    await new Promise((resolve) => setTimeout(resolve, 20 + (number % 50)));
  }
}

/** How many were open at once at the most. */
function mostAtOnce(records: readonly RequestRecord[]): number {
  const changes = records.flatMap(({ startedAtMs, closedAtMs }) => [
    { atMs: startedAtMs, by: 1 },
    { atMs: closedAtMs ?? Infinity, by: -1 },
  ]);
  // Of one millisecond the ends count first: the ledger knows of an end only after it.
  changes.sort((a, b) => a.atMs - b.atMs || a.by - b.by);
  let open = 0;
  let most = 0;
  for (const { by } of changes) {
    open += by;
    most = Math.max(most, open);
  }
  return most;
}

it("admits exactly what there is, at no moment more than there is room for, and books all of it", async () => {
  const admitted = await Promise.all(
    TENANTS.map(async (tenant) => {
      const each = await Promise.all(Array.from({ length: CALLERS }, (_, i) => caller(tenant, i)));
      return each.reduce((sum, count) => sum + count, 0);
    }),
  );
  expect(admitted).toEqual([REQUESTS, REQUESTS]);
  const journal = await stack.simulatorRequests();
  expect(journal).toHaveLength(REQUESTS * TENANTS.length);
  for (const tenant of TENANTS) {
    const own = journal.filter(({ body }) => body.includes(`${tenant}: caller`));
    expect(own).toHaveLength(REQUESTS);
    const most = mostAtOnce(own);
    expect(most).toBeLessThanOrEqual(SLOTS);
    expect(most).toBeGreaterThan(SLOTS / 2); // it was a crowd
    const billed = own.reduce((sum, { usage }) => {
      if (usage === null) throw new Error("a call that the provider does not bill");
      return sum + usage.promptTokens + usage.completionTokens;
    }, 0);
    const balance = await soon(async () => {
      const now = await stack.balance(tenant);
      expect(now).toMatchObject({
        inFlight: { requests: 0, tokens: 0 },
        queue: { length: 0, tokens: 0 },
        reconciling: { count: 0, tokens: 0 },
      });
      return now;
    }, 3_000);
    const tokens = limitOf(balance);
    expect(tokens).toMatchObject({ held: 0, settledTotal: billed, debt: 0 });
    expect(tokens.level ?? 0).toBeGreaterThanOrEqual(TOKENS - billed);
    expect(tokens.level ?? 0).toBeLessThan(TOKENS - billed + 2); // a token a minute
    expect(limitOf(balance, "requests")).toMatchObject({ held: 0, settledTotal: REQUESTS });
    expect(limitOf(balance, "slots")).toMatchObject({ held: 0, level: SLOTS });
    const state = await foldedRecord(stack.stateDir, tenant);
    sweep(state, balance.atMs);
    expect(balance).toEqual(balanceOf(state, tenant));
  }
});
