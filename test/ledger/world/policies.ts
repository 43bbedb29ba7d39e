/** The policies of the world: some of a shelf of limits, in numbers that change at noon. */
import type { Limit } from "../../../src/policy/limit-schema.ts";
import type { LedgerPolicy } from "../../../src/policy/resolve.ts";
import { bucket, calendar, gauge, policyOf, rolling } from "../../support/ledger.ts";
import type { Chance } from "./random.ts";

export function somePolicy(chance: Chance, epoch: number, name = `p${epoch}`): LedgerPolicy {
  const limits = shelf(chance).filter(() => chance.once(4));
  return policyOf(limits.length > 0 ? limits : [bucket(2_000, 3_000)], {
    hash: name,
    epoch,
    queue: { lengthMax: chance.pick([2, 4, 8]), tokensMax: chance.pick([null, 3_000]) },
    leaseTtlMs: chance.pick([4_000, 10_000, 20_000]),
    reconcileAgeMaxMs: chance.pick([15_000, 40_000]),
    reconcileCharge: chance.pick(["charge_hold", "charge_captured"]),
  });
}

/** Room and time for a crowd: what is to be seen there is how much one call takes upon itself. */
export const wide = (): LedgerPolicy =>
  policyOf([bucket(1_000_000, 1_000_000), gauge("concurrency", 500)], {
    leaseTtlMs: 120_000,
    reconcileAgeMaxMs: 120_000,
  });

/** Another of the same limits in other numbers: what an operator does most. */
export function tuned(chance: Chance, policy: LedgerPolicy, epoch: number): LedgerPolicy {
  const others = new Map(shelf(chance).map((limit) => [limit.name, limit]));
  const limits = policy.limits.map((limit) => (chance.once(2) ? limit : (others.get(limit.name) ?? limit)));
  return { ...policy, hash: `p${epoch}`, epoch, limits };
}

function shelf(chance: Chance): Limit[] {
  const some = (least: number, most: number) => chance.between(least, most);
  const zone = chance.pick(["UTC", "Asia/Kolkata"]);
  const every = chance.pick(["day", "week", "month"] as const);
  return [
    bucket(some(800, 4_000), some(0, 6) * 2_000, {
      batchFloor: chance.pick([0, 0.25, 0.5]),
      cachedInputWeight: chance.pick([1, 0.1]),
    }),
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
    gauge("concurrency", chance.once(12) ? 0 : chance.pick([1, 3, 8, 20]), { name: "slots" }),
    gauge("in_flight_tokens", some(300, 2_000), { name: "flight" }),
    gauge("concurrency", "auto", { name: "auto", allowancePerMinute: some(5, 40) }),
    gauge("in_flight_tokens", "auto", {
      name: "auto-tokens",
      allowancePerMinute: some(400, 4_000),
      per: ["model"],
    }),
    calendar(some(3_000, 20_000), {
      name: "hour",
      unit: "tokens",
      every: "hour",
      alerts: [0.5, 1],
      timeZone: zone,
    }),
    calendar(some(2, 9) * 1_000_000, {
      name: "spend",
      every,
      timeZone: zone,
      stop: chance.pick(["hold", "spent"]),
    }),
    calendar(10, { name: "told", unit: "requests", every: "hour", stop: "never", alerts: [1] }),
    rolling(some(800, 3_000)),
    rolling(some(5, 20), { name: "rolling-calls", unit: "requests" }),
    bucket(some(300, 1_500), 3_000, {
      name: "per-model",
      per: ["tenant", "model"],
      batchFloor: chance.pick([0, 0.3]),
    }),
    bucket(some(3, 12), 30, { name: "per-key", unit: "requests", per: ["key"] }),
    gauge("concurrency", 3, {
      name: "per-user",
      per: chance.once(4) ? ["class", "user"] : ["user", "class"],
    }),
    // By one name, sometimes this and sometimes that: each time another limit.
    chance.pick([
      bucket(some(300, 2_000), 6_000, { name: "shape" }),
      bucket(some(300, 2_000), 6_000, { name: "shape", unit: "output_tokens" }),
      rolling(some(800, 3_000), { name: "shape" }),
      gauge("in_flight_tokens", some(300, 2_000), { name: "shape" }),
    ]),
    bucket(0, 0, { name: "no-money", unit: "nano_usd", per: ["route"], capacity: chance.once(6) ? 0 : null }),
  ].map((limit) => (chance.once(40) ? unbound(limit) : limit));
}

const unbound = (limit: Limit): Limit =>
  limit.kind === "gauge" ? { ...limit, max: null } : { ...limit, capacity: null };
