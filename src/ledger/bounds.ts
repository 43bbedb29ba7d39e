/** Every bound of the ledger, with its unit and its reason. */

/** A bucket's level is counted in these parts of a unit: refill per minute is then whole per millisecond. */
export const LEVEL_PER_UNIT = 60_000;

/** Leases one call may look at that are not its own: bounds its latency, and still outruns arrivals. */
export const SWEEP_LEASES_MAX = 64;

/** Waiters one call may admit; who still fits is admitted by the next, or by the timer at once. */
export const ADMIT_MAX = 64;

/** Closed leases are remembered this long, so that a repeated settle gets the answer of the first. */
export const CLOSED_KEPT_MS = 900_000;

/** And at most so many, whatever the rate: about 5 MB. */
export const CLOSED_KEPT_MAX = 10_000;

/** Closed leases forgotten for each new one: one more than come, so that memory shrinks back to its bound. */
export const FORGET_PER_LEASE = 2;

/** Instances of scoped limits (keys, users) that are kept beyond those at rest; a new one beyond is refused. */
export const INSTANCES_MAX = 20_000;

/** Instances looked at for each new one: those at rest equal their beginning and are forgotten. */
export const INSTANCES_LOOKED_AT = 2;

/** A refusal never says "at once": callers would spin. */
export const RETRY_AFTER_MIN_MS = 1_000;

/** Weight of the newest settlement in the running means that forecasts are made from. */
export const MEAN_WEIGHT = 0.1;

/** Models whose drift is kept; a policy that names more forgets the one longest not heard of. */
export const DRIFTS_MAX = 512;

/** A forecast that reaches further is not worth more. */
export const RETRY_AFTER_MAX_MS = 60_000;

/** A grant out of the queue that nobody takes up for so long is given back. */
export const ACCEPT_MS = 5_000;

/** A batch waiter ranks as one who came so much later: the classes' order, and an end to waiting behind it. */
export const BATCH_LAG_MS = 30_000;

/** A gauge that derives itself stays open until it has seen so many calls. */
export const AUTO_SAMPLES_MIN = 50;

/** Weight of the newest stay in the mean that such a gauge follows: it moves slowly. */
export const AUTO_MEAN_WEIGHT = 0.02;

/** And believes at most so many times the median of the last hour: a provider that slows must not open the gate. */
export const AUTO_MEDIAN_MAX = 2;

/** A rolling limit counts in slots of a second; a charge counts until all of its second is sixty seconds old. */
export const ROLLING_SECONDS = 61;

/** Refusals of one write that the record keeps; a flood of them is a number and not a story. */
export const REFUSALS_PER_BATCH_MAX = 64;
