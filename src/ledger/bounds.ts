/** Every bound of the ledger, with its unit and its reason. */

/** A level is counted in these parts of a unit: refill per minute is then whole per millisecond. */
export const LEVEL_PER_UNIT = 60_000;

/** Leases one command may expire or resolve that are not its own: bounds its latency, and still outruns arrivals. */
export const SWEEP_LEASES_MAX = 64;

/** Closed leases are remembered this long, so that a repeated settle gets the answer of the first. */
export const CLOSED_KEPT_MS = 900_000;

/** And at most so many, whatever the rate: about 5 MB. */
export const CLOSED_KEPT_MAX = 10_000;

/** Closed leases one event may forget: more than it can close, so the memory never grows past its bound. */
export const FORGET_PER_EVENT_MAX = SWEEP_LEASES_MAX + 2;

/** A refusal never says "at once": callers would spin. */
export const RETRY_AFTER_MIN_MS = 1_000;

/** Weight of the newest stay in the running mean that predicts when a slot comes free. */
export const STAY_MEAN_WEIGHT = 0.1;
