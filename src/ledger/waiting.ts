/**
 * The queue: who waits, in which order, for how long, and who is next. Nothing here is recorded.
 *
 * Order is class, then arrival: a batch waiter ranks as one who came `BATCH_LAG_MS` later, so it is passed
 * by interactive calls but not for ever. A waiter that does not fit holds back whoever comes after it *and needs
 * a limit that it lacks*: a large one at the head is not starved by small ones, and a full model does not
 * stop the others.
 */
import type { RequestClass } from "../policy/schema.ts";
import { codeOf, type Demand, demandsOf, firstTooLarge, type Shortage, shortages } from "./admission.ts";
import { ADMIT_MAX, BATCH_LAG_MS, ROLLING_SECONDS } from "./bounds.ts";
import { capacityOf, freesInMs, type LimitState, missing, scaleOf } from "./limits.ts";
import { type LedgerState, tokensOf, type Waiter } from "./state.ts";

export const rankOf = (requestClass: RequestClass, arrivedAtMs: number): number =>
  arrivedAtMs + (requestClass === "batch" ? BATCH_LAG_MS : 0);

/** Called by `evolve` alone, like everything that changes the state. */
export function enqueue({ queue }: LedgerState, waiter: Waiter): void {
  const key = waiter.command.idempotency?.key;
  queue.byId.set(waiter.requestId, waiter);
  if (key !== undefined) queue.byIdempotencyKey.set(key, waiter.requestId);
  queue.byClass[waiter.command.class].push(waiter);
  queue.tokens += tokensOf(waiter.hold);
  queue.nextDeadlineAtMs = Math.min(queue.nextDeadlineAtMs, waiter.deadlineAtMs);
}

export function leaveQueue({ queue }: LedgerState, requestId: string): Waiter | null {
  const waiter = queue.byId.get(requestId);
  if (waiter === undefined) return null;
  const key = waiter.command.idempotency?.key;
  queue.byId.delete(requestId);
  if (key !== undefined) queue.byIdempotencyKey.delete(key);
  queue.byClass[waiter.command.class].remove(waiter);
  queue.tokens -= tokensOf(waiter.hold);
  if (queue.byId.size === 0) queue.nextDeadlineAtMs = Infinity;
  return waiter;
}

/** Whose time is up. The bound is renewed on the way, so that most calls look at nobody. */
export function overdue({ queue }: LedgerState, atMs: number): string[] {
  if (queue.nextDeadlineAtMs > atMs) return [];
  const ids: string[] = [];
  let nextDeadlineAtMs = Infinity;
  for (const { requestId, deadlineAtMs } of queue.byId.values()) {
    if (deadlineAtMs <= atMs) ids.push(requestId);
    else nextDeadlineAtMs = Math.min(nextDeadlineAtMs, deadlineAtMs);
  }
  queue.nextDeadlineAtMs = nextDeadlineAtMs;
  return ids;
}

/** In the order in which they are served. */
export function* waitersInOrder({ queue }: LedgerState): Generator<Waiter> {
  let { head: interactive } = queue.byClass.interactive;
  let { head: batch } = queue.byClass.batch;
  while (interactive !== null || batch !== null) {
    const batchFirst =
      interactive === null ||
      (batch !== null && rankOf("batch", batch.arrivedAtMs) < rankOf("interactive", interactive.arrivedAtMs));
    const waiter = batchFirst ? batch : interactive;
    if (waiter === null) return;
    // Read before the caller may take the waiter out.
    if (batchFirst) batch = waiter.next;
    else interactive = waiter.next;
    yield waiter;
  }
}

/** What those further ahead are waiting for, and whom that holds back. */
class Lacking {
  /** Short of the amount itself: nobody who needs it passes. */
  readonly #byAll = new Set<string>();
  /** Short of the batch floor alone: what lies below it is the other class's. */
  readonly #byBatch = new Set<string>();
  #stopsAll = false;

  add(short: readonly Shortage[], requestClass: RequestClass, atMs: number): void {
    for (const shortage of short) {
      const { key, definition } = shortage.limit;
      if (codeOf(shortage, requestClass, atMs) === "below_batch_floor") this.#byBatch.add(key);
      else {
        this.#byAll.add(key);
        // An instance without a scope is asked of every call, if its unit is one that every call takes.
        this.#stopsAll ||= !key.includes("|") && TAKEN_BY_ALL.has(definition.spec.unit);
      }
    }
  }

  holdsBack(demands: readonly Demand[], requestClass: RequestClass): boolean {
    return demands.some(
      ({ limit: { key }, amount }) =>
        amount > 0 && (this.#byAll.has(key) || (requestClass === "batch" && this.#byBatch.has(key))),
    );
  }

  get stopsAll(): boolean {
    return this.#stopsAll;
  }
}

const TAKEN_BY_ALL: ReadonlySet<string> = new Set(["requests", "concurrency", "tokens", "in_flight_tokens"]);

/**
 * Who fits now and is held back by nobody, a bounded number; and who can never fit, since the policy changed.
 * `admit` takes each out before the next is asked.
 */
export function drain(state: LedgerState, atMs: number, admit: (waiter: Waiter) => void): void {
  let admitted = 0;
  const lacking = new Lacking();
  for (const waiter of waitersInOrder(state)) {
    const { command, hold } = waiter;
    const demands = demandsOf(state, command, hold, atMs);
    const never = firstTooLarge(demands, command.class) !== null;
    if (!never && lacking.holdsBack(demands, command.class)) continue;
    const short = never ? [] : shortages(state, demands, command.class, atMs);
    if (short.length > 0) {
      lacking.add(short, command.class, atMs);
      if (lacking.stopsAll) return;
      continue;
    }
    admit(waiter);
    admitted += 1;
    if (admitted === ADMIT_MAX) return;
  }
}

/** Whether somebody who ranks before a newcomer waits for a limit that it needs, or will be let in to it first. */
export function isBehindSomebody(
  state: LedgerState,
  demands: readonly Demand[],
  requestClass: RequestClass,
  atMs: number,
): Demand | null {
  if (state.queue.byId.size === 0) return null;
  const rank = rankOf(requestClass, atMs);
  const wanted = new Map(
    demands.filter(({ amount }) => amount > 0).map((demand) => [demand.limit.key, demand]),
  );
  const lacking = new Lacking();
  for (const { command, hold, arrivedAtMs } of waitersInOrder(state)) {
    if (rankOf(command.class, arrivedAtMs) > rank) return null;
    const theirs = demandsOf(state, command, hold, atMs);
    if (lacking.holdsBack(theirs, command.class)) continue;
    const short = shortages(state, theirs, command.class, atMs);
    lacking.add(short, command.class, atMs);
    // One that fits was only too many for one call: it goes first wherever both take something.
    const first = short.length === 0 ? theirs.filter(({ amount }) => amount > 0) : short;
    const floorOnly = (demand: Demand) =>
      requestClass === "interactive" && codeOf(demand, command.class, atMs) === "below_batch_floor";
    for (const demand of first) {
      const mine = wanted.get(demand.limit.key);
      if (mine !== undefined && (short.length === 0 || !floorOnly(demand))) return mine;
    }
  }
  return null;
}

export interface Forecast {
  /** What it waits for. */
  readonly demand: Demand;
  /** 0 while nothing is known; Infinity when waiting cannot help. */
  readonly waitMs: number;
}

/** When a newcomer would be served: after those before it, from what refills and what the calls inside give back. */
export function forecast(
  state: LedgerState,
  demands: readonly Demand[],
  requestClass: RequestClass,
  atMs: number,
): Forecast | null {
  const ahead = amountsAhead(state, requestClass, atMs);
  let longest: Forecast | null = null;
  for (const demand of demands) {
    const { limit, amount } = demand;
    // A call larger than its gauge waits until that is empty, and no longer.
    const own = missing(limit, amount, requestClass, atMs);
    const missingLevel = limit.definition.spec.kind === "gauge" ? Math.min(own, limit.held) : own;
    const aheadOfIt = isTakenByHolds(demand) ? (ahead.get(limit.key) ?? 0) : 0;
    const neededLevel = missingLevel + aheadOfIt * scaleOf(limit);
    const denied = capacityOf(limit) === 0 && own > 0;
    const inAll = amount + aheadOfIt;
    const waitMs = denied
      ? Infinity
      : neededLevel <= 0
        ? 0
        : waitFor(state, limit, { neededLevel, inAll }, atMs);
    if (longest === null || waitMs > longest.waitMs) longest = { demand, waitMs };
  }
  return longest;
}

/** Who takes nothing of a limit, or of a window that holds do not fill, need not wait there for those ahead. */
function isTakenByHolds({ limit: { definition }, amount }: Demand): boolean {
  const { spec } = definition;
  return amount > 0 && (spec.kind !== "window" || spec.stop === "hold");
}

interface Need {
  /** What is missing now for it and for those before it, in the limit's parts. */
  readonly neededLevel: number;
  /** What they all ask for, in units. */
  readonly inAll: number;
}

function waitFor(state: LedgerState, limit: LimitState, { neededLevel, inAll }: Need, atMs: number): number {
  const { spec, span } = limit.definition;
  const { stayMs, refundShare } = state.means;
  switch (spec.kind) {
    case "bucket": {
      const refundedPerMs = stayMs === 0 ? 0 : (limit.held * refundShare * scaleOf(limit)) / stayMs;
      const perMs = spec.refillPerMinute + refundedPerMs;
      if (perMs > 0) return Math.ceil(neededLevel / perMs);
      // Nothing is known of what comes back yet; without a refill and a hold, nothing will.
      return limit.held > 0 && stayMs === 0 ? 0 : Infinity;
    }
    case "gauge":
      return limit.held === 0 ? 0 : Math.ceil((neededLevel * stayMs) / limit.held);
    case "rolling": {
      const capacity = capacityOf(limit) ?? 0;
      const frees = freesInMs(limit, neededLevel, atMs) ?? Infinity;
      // Past what is charged now come the charges of those ahead, which count as long.
      if (frees < Infinity || capacity === 0) return frees;
      return Math.ceil(neededLevel / capacity) * ROLLING_SECONDS * 1_000;
    }
    case "window": {
      if (span === null || spec.capacity === null || spec.capacity === 0) return Infinity;
      // The next window is for those before it; what they leave nothing of is not the last one.
      const windowsAhead = spec.stop === "hold" ? Math.ceil(inAll / spec.capacity) - 1 : 0;
      return span.endsAtMs - atMs + windowsAhead * (span.endsAtMs - span.startsAtMs);
    }
  }
}

function amountsAhead(state: LedgerState, requestClass: RequestClass, atMs: number): Map<string, number> {
  const rank = rankOf(requestClass, atMs);
  const amounts = new Map<string, number>();
  for (const { command, hold, arrivedAtMs } of waitersInOrder(state)) {
    if (rankOf(command.class, arrivedAtMs) > rank) break;
    for (const { limit, amount } of demandsOf(state, command, hold, atMs))
      amounts.set(limit.key, (amounts.get(limit.key) ?? 0) + amount);
  }
  return amounts;
}

/** When the queue wants to be looked at again, if nothing happens before: a deadline, or room by refill alone. Null when empty. */
export function nextWakeAtMs(state: LedgerState, atMs: number): number | null {
  if (state.queue.byId.size === 0) return null;
  let wakeAtMs = state.queue.nextDeadlineAtMs;
  const lacking = new Lacking();
  for (const { command, hold } of waitersInOrder(state)) {
    if (lacking.stopsAll) break;
    const demands = demandsOf(state, command, hold, atMs);
    if (lacking.holdsBack(demands, command.class)) continue;
    const short = shortages(state, demands, command.class, atMs);
    if (short.length === 0) return atMs;
    // The first to free, not the last: others need not wait for it any longer behind this one.
    for (const shortage of short) wakeAtMs = Math.min(wakeAtMs, atMs + holdsBackForMs(shortage, atMs));
    lacking.add(short, command.class, atMs);
  }
  return wakeAtMs;
}

/** By refill alone, until it is met, or lacks the batch floor alone and holds back its own class only. */
function holdsBackForMs({ limit, amount, freesInMs: untilMetMs }: Shortage, atMs: number): number {
  const withoutFloor = missing(limit, amount, "interactive", atMs);
  const inMs = withoutFloor > 0 ? freesInMs(limit, withoutFloor, atMs) : untilMetMs;
  return inMs ?? Infinity;
}
