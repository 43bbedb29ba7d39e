/** The policies of the world: some of a shelf of limits, in numbers that change at noon. */
import type { Limit } from "../../../src/policy/limit-schema.ts";
import type { LedgerPolicy } from "../../../src/policy/resolve.ts";
import { bucket, calendar, gauge, policyOf, rolling } from "../../support/ledger.ts";
import type { Chance } from "./random.ts";

/** A calm one is roomy, and has a gauge that must learn. */
export function somePolicy(chance: Chance, epoch: number, calm: boolean): LedgerPolicy {
  const limits = shelf(chance, calm ? 10 : 1).filter(
    (limit) => chance.once(3) || (calm && limit.name === "auto"),
  );
  return policyOf(limits.length > 0 ? limits : [bucket(2_000, 3_000)], {
    hash: `p${epoch}`,
    epoch,
    queue: { lengthMax: chance.pick([3, 8]), tokensMax: chance.pick([null, 3_000]) },
    leaseTtlMs: chance.pick([4_000, 20_000, 40_000]),
    reconcileAgeMaxMs: chance.pick([10_000, 40_000]),
    reconcileCharge: chance.pick(["charge_hold", "charge_captured"]),
  });
}

function shelf(chance: Chance, room: number): Limit[] {
  const some = (least: number, most: number) => chance.between(least, most) * room;
  return [
    bucket(some(800, 4_000), some(0, 6) * 2_000, { batchFloor: chance.pick([0, 0.25, 0.5]) }),
    bucket(some(500, 2_000), 6_000, {
      name: "input",
      unit: "input_tokens",
      cachedInputWeight: chance.pick([1, 0.1, 0]),
    }),
    bucket(some(400, 1_500), 4_000, { name: "output", unit: "output_tokens" }),
    bucket(some(5, 30), some(20, 120), {
      name: "requests",
      unit: "requests",
      batchFloor: chance.pick([0, 0.2]),
    }),
    bucket(some(1, 9) * 100_000, 600_000, { name: "money", unit: "nano_usd" }),
    gauge("concurrency", chance.pick([0, 3, 8, 20, 20, 20]), { name: "slots" }),
    gauge("in_flight_tokens", some(300, 2_000), { name: "flight" }),
    gauge("concurrency", "auto", { name: "auto", allowancePerMinute: some(60, 600) }),
    calendar(some(3_000, 20_000), { name: "hour", unit: "tokens", every: "hour", alerts: [0.5, 1] }),
    calendar(some(2, 9) * 1_000_000, { name: "day", every: "day", stop: chance.pick(["hold", "spent"]) }),
    calendar(5, { name: "told", unit: "requests", every: "hour", stop: "never", alerts: [1] }),
    rolling(some(800, 3_000)),
    bucket(some(300, 1_500), 3_000, { name: "per-model", per: ["tenant", "model"] }),
    bucket(some(3, 12), 30, { name: "per-key", unit: "requests", per: ["key"] }),
    gauge("concurrency", 3, { name: "per-user", per: ["user", "class"] }),
  ];
}
