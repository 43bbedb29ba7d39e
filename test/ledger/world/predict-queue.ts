/** The model's queue: who stands before whom, who may be let in, and what a newcomer may expect of waiting. */
import type { Reserve } from "../../../src/ledger/commands.ts";
import { codeOf, shortOf } from "./answers.ts";
import type { Demand, Model, ModelWaiter } from "./model.ts";
import { capacity, freesInMs, lacking, mostEver } from "./model-limits.ts";

const BATCH_LAG_MS = 30_000;

const rankOf = (requestClass: string, arrivedAtMs: number): number =>
  arrivedAtMs + (requestClass === "batch" ? BATCH_LAG_MS : 0);

/** By class, then arrival, with a batch waiter counting as one that came half a minute later. */
export function inOrder(model: Model): ModelWaiter[] {
  const rank = ({ command, arrivedAtMs }: ModelWaiter) => rankOf(command.class, arrivedAtMs);
  const late = ({ command }: ModelWaiter) => (command.class === "batch" ? 1 : 0);
  return [...model.waiters].toSorted((a, b) => rank(a) - rank(b) || late(a) - late(b));
}

/** What those further ahead lack, and whom that holds back. */
class Wanting {
  readonly #of = new Map<string, "everybody" | "batch">();

  /** Whether it is something that every call takes. */
  add(short: readonly Demand[], requestClass: string, atMs: number): boolean {
    let stops = false;
    for (const demand of short) {
      const { key, kind } = demand.bound;
      if (codeOf(demand, requestClass, atMs) !== "below_batch_floor") {
        this.#of.set(key, "everybody");
        const isCommon = ["requests", "concurrency", "tokens", "in_flight_tokens"].includes(kind.spec.unit);
        stops ||= isCommon && key === kind.spec.name;
      } else if (!this.#of.has(key)) this.#of.set(key, "batch");
    }
    return stops;
  }

  holdsBack(demands: readonly Demand[], requestClass: string): boolean {
    return demands.some(({ bound, wanted }) => {
      const whom = this.#of.get(bound.key);
      return wanted > 0 && (whom === "everybody" || (whom === "batch" && requestClass === "batch"));
    });
  }
}

/** The newcomer's own demand for which somebody waits, or goes, before it. */
export function isBehind(model: Model, command: Reserve, demands: readonly Demand[]): Demand | null {
  const wanting = new Wanting();
  const mine = (key: string) => demands.find(({ bound, wanted }) => wanted > 0 && bound.key === key) ?? null;
  for (const { command: theirs, hold, arrivedAtMs } of inOrder(model)) {
    if (rankOf(theirs.class, arrivedAtMs) > rankOf(command.class, model.nowMs)) return null;
    const asked = model.demands(theirs.scope, theirs.price, hold);
    if (wanting.holdsBack(asked, theirs.class)) continue;
    const short = shortOf(model, asked, theirs.class);
    wanting.add(short, theirs.class, model.nowMs);
    // What lies below the floor is the other class's.
    const isTheirs = (demand: Demand) =>
      command.class === "batch" || codeOf(demand, theirs.class, model.nowMs) !== "below_batch_floor";
    const taken = short.length === 0 ? asked.filter(({ wanted }) => wanted > 0) : short.filter(isTheirs);
    for (const { bound } of taken) {
      const shared = mine(bound.key);
      if (shared !== null) return shared;
    }
  }
  return null;
}

/** One round over the queue: whose turn it is, each asked once those before have been let in. */
export function* turnsOf(model: Model): Generator<string> {
  const wanting = new Wanting();
  for (const { command, hold } of inOrder(model)) {
    const demands = model.demands(command.scope, command.price, hold);
    const isHopeless = demands.some(({ bound, wanted }) => wanted > mostEver(bound, command.class));
    if (!isHopeless) {
      if (wanting.holdsBack(demands, command.class)) continue;
      const short = shortOf(model, demands, command.class);
      if (short.length > 0) {
        // What every call takes is lacking: the rest need not be asked.
        if (wanting.add(short, command.class, model.nowMs)) return;
        continue;
      }
    }
    yield command.requestId;
  }
}

/**
 * When a newcomer would be served, and what it waits for: after those before it, from what refills and what comes
 * back. A forecast is no promise, but the model makes it from its own means and holds the ledger to it.
 */
export function longestWait(model: Model, command: Reserve, demands: readonly Demand[]) {
  const isBefore = (waiter: ModelWaiter) =>
    rankOf(waiter.command.class, waiter.arrivedAtMs) <= rankOf(command.class, model.nowMs);
  const before = model.waiters
    .filter(isBefore)
    .flatMap((waiter) => model.demands(waiter.command.scope, waiter.command.price, waiter.hold));
  const waits = demands.map((demand) => {
    const { key } = demand.bound;
    const ahead = before.reduce((sum, { bound, wanted }) => sum + (bound.key === key ? wanted : 0), 0);
    return { demand, waitMs: waitFor(model, command.class, demand, ahead) };
  });
  const longest = waits.reduce((a, b) => (b.waitMs > a.waitMs ? b : a));
  return longest;
}

function waitFor(model: Model, requestClass: string, { bound, wanted }: Demand, ahead: number): number {
  const { spec, span } = bound.kind;
  const { stayMs, refundShare } = model.means;
  const own = lacking(bound, wanted, requestClass, model.nowMs);
  const most = capacity(bound) ?? Infinity;
  if (most === 0 && own > 0) return Infinity;
  if (wanted === 0) return 0;
  switch (spec.kind) {
    case "bucket": {
      const needed = own + ahead * 60_000;
      if (needed <= 0) return 0;
      const perMs = spec.refillPerMinute + (stayMs === 0 ? 0 : (bound.held * refundShare * 60_000) / stayMs);
      if (perMs > 0) return Math.ceil(needed / perMs);
      return bound.held > 0 && stayMs === 0 ? 0 : Infinity;
    }
    case "gauge": {
      // Whoever is larger than all of it waits until it is empty, and no longer.
      const needed = Math.min(own, bound.held) + ahead;
      return needed <= 0 || bound.held === 0 ? 0 : Math.ceil((needed * stayMs) / bound.held);
    }
    case "rolling": {
      const needed = own + ahead;
      if (needed <= 0) return 0;
      const frees = freesInMs(bound, needed, model.nowMs) ?? Infinity;
      return frees < Infinity || most === 0 ? frees : Math.ceil(needed / most) * 61_000;
    }
    case "window": {
      // Only one that holds fill is spoken for by those before.
      const isFilledByHolds = spec.stop === "hold";
      if (own + (isFilledByHolds ? ahead : 0) <= 0) return 0;
      if (span === null || most === 0) return Infinity;
      // The next window is for those before it.
      const windows = isFilledByHolds ? Math.ceil((wanted + ahead) / most) - 1 : 0;
      return span.endsAtMs - model.nowMs + windows * (span.endsAtMs - span.startsAtMs);
    }
  }
}
