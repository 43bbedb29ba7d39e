/**
 * Limits as an operator writes them. `kind` says how the bound frees again:
 *
 *   bucket    refills steadily up to `capacity`, and may be in debt
 *   gauge     at most `max` at once; what ends comes back ("auto": derived by Little's law)
 *   window    at most `capacity` in each calendar hour, day, week or month of a time zone
 *   rolling   at most `capacity` in any sixty seconds
 */
import * as v from "valibot";

/** Amounts stay far below 2^53 even in a bucket's 60,000ths. */
export const AMOUNT_MAX = 1_000_000_000;
/** A window has no 60,000ths, and money needs the room: nine million dollars in nano-USD. */
export const WINDOW_AMOUNT_MAX = 9_000_000_000_000_000;
/** A bucket of money has them: a hundred dollars. */
export const MONEY_BUCKET_MAX = 100_000_000_000;

export const integer = (min: number, max: number) =>
  v.pipe(v.number(), v.integer(), v.minValue(min), v.maxValue(max));
export const amount = integer(0, AMOUNT_MAX);
/** `null` is unlimited, 0 denies. */
export const amountOrUnlimited = v.nullable(amount);
export const share = v.pipe(v.number(), v.finite(), v.minValue(0), v.maxValue(1));
export const name = v.pipe(
  v.string(),
  v.regex(/^[A-Za-z0-9*][A-Za-z0-9._:/-]{0,127}$/, "a name of at most 128 letters, digits and . _ : / -"),
);

const DIMENSIONS = ["tenant", "class", "route", "model", "pool", "key", "user"] as const;
const COUNTED = ["tokens", "input_tokens", "output_tokens", "requests", "nano_usd"] as const;

/** One instance of the limit for each value of these; a ledger is one tenant's, so `tenant` adds nothing. */
const per = v.optional(
  v.pipe(
    v.array(v.picklist(DIMENSIONS)),
    v.check((dimensions) => new Set(dimensions).size === dimensions.length, "each dimension once"),
  ),
  ["tenant"],
);
/** What a cached input token counts for, of an uncached one. */
const cachedInputWeight = v.optional(share, 1);
const countedUnit = v.picklist(COUNTED);

const timeZone = v.pipe(
  v.string(),
  v.check((zone) => {
    try {
      return new Intl.DateTimeFormat("en", { timeZone: zone }).resolvedOptions().timeZone !== "";
    } catch {
      return false;
    }
  }, "a time zone such as UTC or Europe/Berlin"),
);

export const BucketLimit = v.strictObject({
  name,
  per,
  kind: v.literal("bucket"),
  unit: countedUnit,
  capacity: v.nullable(integer(0, MONEY_BUCKET_MAX)),
  refillPerMinute: integer(0, MONEY_BUCKET_MAX),
  /** Share of the capacity that the batch class may not take the level below. */
  batchFloor: v.optional(share, 0),
  cachedInputWeight,
});

export const GaugeLimit = v.strictObject({
  name,
  per,
  kind: v.literal("gauge"),
  unit: v.picklist(["concurrency", "in_flight_tokens"]),
  /** "auto": allowancePerMinute / 60 x headroom x the mean seconds that calls stay. */
  max: v.union([amountOrUnlimited, v.literal("auto")]),
  /** Calls or tokens that may begin in a minute; for "auto" alone. */
  allowancePerMinute: v.optional(v.nullable(amount), null),
  headroom: v.optional(v.pipe(v.number(), v.finite(), v.gtValue(0), v.maxValue(10)), 0.8),
});

export const WindowLimit = v.strictObject({
  name,
  per,
  kind: v.literal("window"),
  unit: countedUnit,
  capacity: v.nullable(integer(0, WINDOW_AMOUNT_MAX)),
  every: v.picklist(["hour", "day", "week", "month"]),
  timeZone: v.optional(timeZone, "UTC"),
  /**
   * When it says no. "hold": when the hold does not fit. "spent": once all is spent, so that the last calls may
   * pass it. "never": it only tells.
   */
  stop: v.optional(v.picklist(["hold", "spent", "never"]), "hold"),
  /** Shares of the capacity whose passing is told. */
  alerts: v.optional(v.array(v.pipe(v.number(), v.finite(), v.gtValue(0), v.maxValue(10))), []),
  cachedInputWeight,
});

export const RollingLimit = v.strictObject({
  name,
  per,
  kind: v.literal("rolling"),
  unit: countedUnit,
  capacity: v.nullable(integer(0, WINDOW_AMOUNT_MAX)),
  cachedInputWeight,
});

export const LimitSchema = v.variant("kind", [BucketLimit, GaugeLimit, WindowLimit, RollingLimit]);

export const Override = v.strictObject({
  capacity: v.optional(v.nullable(integer(0, WINDOW_AMOUNT_MAX))),
  refillPerMinute: v.optional(integer(0, MONEY_BUCKET_MAX)),
  batchFloor: v.optional(share),
  max: v.optional(amountOrUnlimited),
  allowancePerMinute: v.optional(amount),
  headroom: v.optional(v.pipe(v.number(), v.finite(), v.gtValue(0), v.maxValue(10))),
});

export type Dimension = (typeof DIMENSIONS)[number];
export type BucketSpec = v.InferOutput<typeof BucketLimit>;
export type GaugeSpec = v.InferOutput<typeof GaugeLimit>;
export type WindowSpec = v.InferOutput<typeof WindowLimit>;
export type RollingSpec = v.InferOutput<typeof RollingLimit>;
export type Limit = BucketSpec | GaugeSpec | WindowSpec | RollingSpec;
export type LimitOverride = v.InferOutput<typeof Override>;

/** Who a request counts as, dimension by dimension; empty where it has none. */
export type Scope = Readonly<Record<Exclude<Dimension, "tenant">, string>>;

/**
 * An instance's key: the limit's name, and after bars the scope that it is one of.
 * `tenant-tokens` · `model-tokens|model=gpt-4o-mini`
 */
export function limitKey(limit: Limit, scope: Scope): string {
  let key = limit.name;
  for (const dimension of limit.per) {
    if (dimension !== "tenant") key += `|${dimension}=${encodeURIComponent(scope[dimension])}`;
  }
  return key;
}

export function limitNameOf(key: string): string {
  const bar = key.indexOf("|");
  return bar < 0 ? key : key.slice(0, bar);
}

/** What the key says of the scope, without the tenant. */
export function scopeOf(key: string): Readonly<Record<string, string>> {
  const scope: Record<string, string> = {};
  for (const pair of key.split("|").slice(1)) {
    const [dimension = "", value = ""] = pair.split("=");
    scope[dimension] = decodeURIComponent(value);
  }
  return scope;
}

/** What a schema of single members cannot say. */
export function limitProblems(
  limit: Limit,
): { readonly member: string; readonly expected: string; readonly received: string }[] {
  const problems: { member: string; expected: string; received: string }[] = [];
  const add = (member: string, expected: string, received: unknown) =>
    problems.push({ member, expected, received: JSON.stringify(received) });
  if (limit.kind === "bucket" && limit.unit !== "nano_usd") {
    if (limit.capacity !== null && limit.capacity > AMOUNT_MAX)
      add("capacity", `<=${AMOUNT_MAX}`, limit.capacity);
    if (limit.refillPerMinute > AMOUNT_MAX) add("refillPerMinute", `<=${AMOUNT_MAX}`, limit.refillPerMinute);
  }
  if (limit.kind === "gauge") {
    if (limit.max === "auto" && limit.allowancePerMinute === null)
      add("allowancePerMinute", "a number: auto is derived from it", null);
    if (limit.max !== "auto" && limit.allowancePerMinute !== null)
      add("allowancePerMinute", 'nothing, unless max is "auto"', limit.allowancePerMinute);
  }
  return problems;
}
