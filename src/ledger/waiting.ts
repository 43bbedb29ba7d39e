/**
 * The queue: who waits, in which order, for how long, and who is next. Nothing here is recorded.
 *
 * Order is class, then arrival: a batch waiter ranks as one who came `BATCH_LAG_MS` later, so it is passed
 * by interactive calls but not for ever. A waiter that does not fit holds back whoever comes after it *and needs
 * a limit that it lacks*: a large one at the head is not starved by small ones, and a full model does not
 * stop the others.
 */
import type { RequestClass } from "../policy/schema.ts";
import { bindingOf, type Demand, demandsOf, shortages } from "./admission.ts";
import { ADMIT_MAX, BATCH_LAG_MS } from "./bounds.ts";
import { capacityOf, freesInMs, type LimitState, missing, scaleOf } from "./limits.ts";
import { type LedgerState, tokensOf, type Waiter } from "./state.ts";

export const rankOf = (requestClass: RequestClass, arrivedAtMs: number): number =>
  arrivedAtMs + (requestClass === "batch" ? BATCH_LAG_MS : 0);

/** Called by `evolve` alone, like everything that changes the state. */
export function enqueue({ queue }: LedgerState, waiter: Waiter): void {
  queue.byId.set(waiter.requestId, waiter);
  queue.byClass[waiter.command.class].push(waiter);
  queue.tokens += tokensOf(waiter.hold);
  queue.nextDeadlineAtMs = Math.min(queue.nextDeadlineAtMs, waiter.deadlineAtMs);
}

export function leaveQueue({ queue }: LedgerState, requestId: string): Waiter | null {
  const waiter = queue.byId.get(requestId);
  if (waiter === undefined) return null;
  queue.byId.delete(requestId);
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

/** Who fits now and is held back by nobody, a bounded number. `admit` takes each out before the next is asked. */
export function drain(state: LedgerState, atMs: number, admit: (waiter: Waiter) => void): void {
  let admitted = 0;
  const lacking = new Set<string>();
  for (const waiter of waitersInOrder(state)) {
    const demands = demandsOf(state, waiter.command, waiter.hold, atMs);
    if (isHeldBack(demands, lacking)) {
      if (lackedByAll(lacking)) return;
      continue;
    }
    const short = shortages(state, demands, waiter.command.class, atMs);
    if (short.length === 0) {
      admit(waiter);
      admitted += 1;
      if (admitted === ADMIT_MAX) return;
    } else {
      for (const { limit } of short) lacking.add(limit.key);
      if (lackedByAll(lacking)) return;
    }
  }
}

/** An instance without a scope is asked of every call: when it lacks, nobody behind can pass. */
const lackedByAll = (lacking: ReadonlySet<string>): boolean => {
  for (const key of lacking) if (!key.includes("|")) return true;
  return false;
};

const isHeldBack = (demands: readonly Demand[], lacking: ReadonlySet<string>): boolean =>
  demands.some(({ limit }) => lacking.has(limit.key));

/** Whether somebody who ranks before a newcomer waits for a limit that it needs. The queue has been drained. */
export function isBehindSomebody(
  state: LedgerState,
  demands: readonly Demand[],
  requestClass: RequestClass,
  atMs: number,
): Demand | null {
  if (state.queue.byId.size === 0) return null;
  const rank = rankOf(requestClass, atMs);
  const wanted = new Map(demands.map((demand) => [demand.limit.key, demand]));
  const lacking = new Set<string>();
  for (const { command, hold, arrivedAtMs } of waitersInOrder(state)) {
    if (rankOf(command.class, arrivedAtMs) > rank) return null;
    const theirs = demandsOf(state, command, hold, atMs);
    if (isHeldBack(theirs, lacking)) continue;
    for (const { limit } of shortages(state, theirs, command.class, atMs)) {
      const mine = wanted.get(limit.key);
      if (mine !== undefined) return mine;
      lacking.add(limit.key);
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
    const neededLevel =
      missing(limit, amount, requestClass, atMs) + (ahead.get(limit.key) ?? 0) * scaleOf(limit);
    const waitMs = neededLevel <= 0 ? 0 : waitFor(state, limit, neededLevel, atMs);
    if (longest === null || waitMs > longest.waitMs) longest = { demand, waitMs };
  }
  return longest;
}

function waitFor(state: LedgerState, limit: LimitState, neededLevel: number, atMs: number): number {
  const { spec } = limit.definition;
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
      if (capacityOf(limit) === 0) return Infinity;
      return limit.held === 0 ? 0 : Math.ceil((neededLevel * stayMs) / limit.held);
    default:
      return freesInMs(limit, neededLevel, atMs) ?? Infinity;
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
  let wakeAtMs = Infinity;
  const lacking = new Set<string>();
  let open = true;
  for (const { command, hold, deadlineAtMs } of waitersInOrder(state)) {
    wakeAtMs = Math.min(wakeAtMs, deadlineAtMs);
    if (!open) continue;
    const demands = demandsOf(state, command, hold, atMs);
    if (isHeldBack(demands, lacking)) continue;
    const short = shortages(state, demands, command.class, atMs);
    const binding = bindingOf(state, short);
    if (binding === null) return atMs;
    if (binding.freesInMs !== null) wakeAtMs = Math.min(wakeAtMs, atMs + binding.freesInMs);
    for (const { limit } of short) lacking.add(limit.key);
    open = !lackedByAll(lacking);
  }
  return wakeAtMs;
}
