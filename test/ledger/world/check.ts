/** Holds what the ledger did against what the model says it must have done, and its numbers against the model's. */
import type { Command } from "../../../src/ledger/commands.ts";
import type { LedgerState } from "../../../src/ledger/state.ts";
import { nextDueAtMs } from "../../../src/ledger/turn.ts";
import type { LedgerEvent } from "../../../src/ledger/types.ts";
import { type Balance, isHeldBy, reservationOf } from "../../../src/ledger/view.ts";
import { nextWakeAtMs } from "../../../src/ledger/waiting.ts";
import type { Coverage } from "./coverage.ts";
import { isClosed, isOpen, type Model, type ModelLease, subjectOf, tokens } from "./model.ts";
import { capacity, free, isAtRest, wrongAuto } from "./model-limits.ts";
import { predict } from "./predict.ts";
import { turnsOf } from "./predict-queue.ts";

/** What must hold and does not. */
export class Broken extends Error {
  override readonly name = "Broken";
  readonly rule: string;

  constructor(rule: string, what: string) {
    super(`${rule}: ${what}`);
    this.rule = rule;
  }
}

export function must(rule: string, holds: boolean, what: () => string): void {
  if (!holds) throw new Broken(rule, what());
}

/** Leases that one sweep may look at, in all its lines. */
const SWEEP_MAX = 64;

/** Walks a turn's events: what was due, the command's own, and who was let in. The model follows. */
export class Walk {
  readonly #model: Model;
  readonly #state: LedgerState;
  readonly #events: readonly LedgerEvent[];
  readonly #coverage: Coverage;
  readonly touched = new Set<string>();
  #at = 0;
  #swept = 0;

  constructor(model: Model, state: LedgerState, events: readonly LedgerEvent[], coverage: Coverage) {
    this.#model = model;
    this.#state = state;
    this.#events = events;
    this.#coverage = coverage;
  }

  /** The caller's own command comes last but for those that it lets in; null for an alarm. */
  turn(command: Command | null, nowMs: number): void {
    const model = this.#model;
    model.nowMs = Math.max(model.nowMs, nowMs);
    for (const [limit, { span }] of model.kinds)
      if (span !== null && span.endsAtMs <= model.nowMs) this.#next({ type: "turn_window", limit });
    this.#due(isOpen, (requestId) => ({ type: "expire", requestId, cause: "deadline" }));
    this.#due(
      ({ state }) => state === "RECONCILING",
      (requestId) => ({ type: "resolve", requestId, usage: null }),
    );
    for (const { command: waiting, deadlineAtMs } of model.waiters)
      if (deadlineAtMs <= model.nowMs)
        this.#next({ type: "leave", requestId: waiting.requestId, cause: "deadline" });
    this.#admits();
    if (command !== null) {
      this.#next(command);
      // Learnt by what left just now.
      this.#learn();
      this.#admits();
    }
    const more = this.#events[this.#at];
    must("turn", more === undefined, () => `an event that nobody asked for: ${JSON.stringify(more)}`);
  }

  /** A turn that is only asked about ends with the answer. */
  preview(command: Command): void {
    this.#next(command);
  }

  #next(command: Command): void {
    const event = this.#events[this.#at];
    const id = subjectOf(command);
    if (event === undefined) throw new Broken("turn", `no event for ${JSON.stringify(command)}`);
    this.#at += 1;
    const before = this.#stateOf(id);
    const waited = this.#model.waiters.some((waiter) => waiter.command.requestId === id);
    const expected = predict(this.#model, command);
    const wrong = differenceOf(expected, event, "");
    must("reply", wrong === null, () => `${command.type} ${id ?? ""} came to ${event.type}, but ${wrong}`);
    if (id !== null) this.touched.add(id);
    const kind = "limit" in event && event.limit !== null ? kindOf(this.#model, event.limit) : null;
    this.#coverage.step(command, event, { from: waited ? "PROPOSED" : before, to: this.#stateOf(id), kind });
  }

  #stateOf(id: string | null): string {
    return (id === null ? undefined : this.#model.leases.get(id)?.state) ?? "-";
  }

  /** All that are due and no other; in which order is the ledger's own. */
  #due(isIt: (lease: ModelLease) => boolean, commandFor: (id: string) => Command): void {
    const due = () =>
      [...this.#model.leases.values()].filter(
        (lease) => lease.expiresAtMs <= this.#model.nowMs && isIt(lease),
      );
    for (let left = due(); left.length > 0; left = due()) {
      const event = this.#events[this.#at];
      const id = event !== undefined && "requestId" in event ? event.requestId : null;
      const isNext = left.some((lease) => lease.id === id);
      // What is left after so many is the next one's; a line's first that is not yet due was looked at as well.
      if (this.#swept === SWEEP_MAX || (!isNext && this.#swept >= SWEEP_MAX - 8)) return;
      this.#swept += 1;
      if (this.#swept === SWEEP_MAX - 8) this.#coverage.count("sweep full");
      if (!isNext || id === null)
        throw new Broken(
          "due",
          `${left.map((lease) => lease.id).join()}: overdue, and ${event?.type ?? "nothing"} came`,
        );
      this.#next(commandFor(id));
    }
  }

  #admits(): void {
    for (const requestId of turnsOf(this.#model)) this.#next({ type: "admit", requestId });
  }

  #learn(): void {
    for (const bound of this.#model.bounds.values()) {
      const { spec } = bound.kind;
      if (spec.kind !== "gauge" || spec.max !== "auto") continue;
      const autoMax = this.#state.limits.get(bound.key)?.autoMax ?? null;
      const wrong = wrongAuto(bound, autoMax);
      must("auto", wrong === null, () => `${bound.key}: ${wrong}`);
      if (autoMax !== bound.autoMax) this.#model.putBound({ ...bound, autoMax });
    }
  }
}

function kindOf(model: Model, key: string): string {
  const bound = model.bounds.get(key);
  if (bound === undefined) return key.startsWith("route:") ? "ceiling" : "fresh";
  const { spec } = bound.kind;
  return spec.kind === "gauge" && spec.max === "auto" ? "auto" : spec.kind;
}

/** Null if they are alike. A standing is a quotient, and nearly alike will do. */
function differenceOf(expected: unknown, found: unknown, path: string): string | null {
  if (Object.is(expected, found) || expected === found) return null;
  if (typeof expected === "number" && typeof found === "number" && path.endsWith(".level"))
    if (Math.abs(expected - found) < 1e-4) return null;
  const told = () => `${path.slice(1)}: expected ${JSON.stringify(expected)}, found ${JSON.stringify(found)}`;
  if (typeof expected !== "object" || typeof found !== "object" || expected === null || found === null)
    return told();
  if (Array.isArray(expected) && expected.length !== (found as unknown[]).length) return told();
  const [a, b] = [expected as Record<string, unknown>, found as Record<string, unknown>];
  for (const member of Object.keys(b)) if (!(member in a)) return `${path}.${member} was not expected`;
  for (const member of Object.keys(a)) {
    const difference = differenceOf(a[member], b[member], `${path}.${member}`);
    if (difference !== null) return difference;
  }
  return null;
}

/** I1, I3: one lease, member by member. */
export function checkLease(model: Model, state: LedgerState, id: string): void {
  const lease = state.leases.get(id);
  const mine = model.leases.get(id);
  const told = (of: { readonly state: string } | undefined) => of?.state ?? "unknown";
  must(
    "lease",
    (lease === undefined) === (mine === undefined),
    () => `${id} is ${told(lease)}, not ${told(mine)}`,
  );
  if (lease === undefined || mine === undefined) return;
  const wrong = differenceOf({ ...mine }, { ...mine, ...factsOf(lease) }, "");
  must("lease", wrong === null, () => `${id} ${wrong}`);
}

const factsOf = (lease: NonNullable<ReturnType<LedgerState["leases"]["get"]>>): Partial<ModelLease> => ({
  fence: lease.fence,
  state: lease.state as ModelLease["state"],
  hold: lease.hold,
  captured: lease.captured,
  charges: lease.charges,
  expiresAtMs: lease.expiresAtMs,
  lastUsageEventId: lease.lastUsageEventId,
  providerRequestId: lease.providerRequestId,
  settled: lease.settlement,
});

/** I2, I5, I9: every limit stands where the model says, whatever was decided; read as anyone outside reads it. */
export function checkBalance(model: Model, balance: Balance): void {
  const alike = (what: string, found: unknown, expected: unknown) =>
    must("balance", found === expected, () => `${what} is ${String(found)}, not ${String(expected)}`);
  const left = new Map(model.bounds);
  for (const row of balance.limits) {
    const { tenant: _, ...scope } = row.scope;
    const pairs = Object.entries(scope).map(
      ([dimension, value]) => `${dimension}=${encodeURIComponent(value)}`,
    );
    const key = [row.name, ...pairs].join("|");
    const bound = left.get(key);
    if (bound === undefined) throw new Broken("balance", `nothing ever touched ${key}`);
    left.delete(key);
    const most = capacity(bound);
    const level = most === null ? null : free(bound, model.nowMs);
    alike(`capacity of ${key}`, row.capacity, most);
    alike(`level of ${key}`, row.level, level);
    alike(`held of ${key}`, row.held, bound.held);
    alike(`debt of ${key}`, row.debt, level !== null && level < 0 ? -level : 0);
    must(
      "I5",
      level === null || row.capacity === null || level <= row.capacity,
      () => `${key} is beyond its capacity`,
    );
    // An instance at rest may be forgotten, and its totals with it.
    if (pairs.length > 0) continue;
    alike(`settledTotal of ${key}`, row.settledTotal, bound.settledTotal);
    alike(`creditedTotal of ${key}`, row.creditedTotal, bound.creditedTotal);
  }
  for (const bound of left.values())
    must("balance", isAtRest(bound, model.nowMs), () => `${bound.key} was forgotten`);
  checkSums(model, balance);
}

function checkSums(model: Model, { atMs, inFlight, queue, reconciling }: Balance): void {
  const sums = { requests: 0, tokens: 0, count: 0, frozen: 0 };
  for (const lease of model.leases.values()) {
    if (isClosed(lease)) continue;
    if (isOpen(lease)) {
      sums.requests += 1;
      sums.tokens += Math.max(0, tokens(lease.hold) - tokens(lease.captured));
    } else {
      sums.count += 1;
      sums.frozen += tokens(lease.hold);
    }
  }
  const waiting = model.waiters.reduce((sum, { hold }) => sum + tokens(hold), 0);
  const expected = [
    model.nowMs,
    sums.requests,
    sums.tokens,
    model.waiters.length,
    waiting,
    sums.count,
    sums.frozen,
  ];
  const found = [
    atMs,
    inFlight.requests,
    inFlight.tokens,
    queue.length,
    queue.tokens,
    reconciling.count,
    reconciling.tokens,
  ];
  must("balance", expected.join() === found.join(), () => `sums are ${found.join()}, not ${expected.join()}`);
}

/** What a caller reads of its reservation, and whether it is its own. */
export function checkReservation(model: Model, state: LedgerState, id: string): void {
  const found = reservationOf(state, id);
  const lease = model.leases.get(id);
  for (const key of new Set([lease?.scope.key ?? "", "k 1"])) {
    const isOwn = lease !== undefined && !lease.proxied && lease.scope.key === key;
    must(
      "reservation",
      isHeldBy(state, id, key) === isOwn,
      () => `${id} is ${isOwn ? "not " : ""}held by ${key}`,
    );
  }
  const expected =
    lease === undefined || lease.fence === 0
      ? null
      : {
          id,
          fence: lease.fence,
          state: lease.state,
          heldTokens: isClosed(lease) ? 0 : tokens(lease.hold),
          capturedTokens: tokens(lease.captured),
          settledTokens: lease.settled === null ? 0 : tokens(lease.settled.usage),
          expiresAtMs: lease.expiresAtMs,
        };
  const wrong = differenceOf(expected, found, "");
  must("reservation", wrong === null, () => `${id} ${wrong}`);
}

/** The alarm and the queue's timer are set early enough: before them nothing falls due, and nobody could be let in. */
export function checkTimers(model: Model, state: LedgerState): void {
  const [dueAtMs, mine] = [nextDueAtMs(state), model.nextDueAtMs()];
  must("timers", dueAtMs === mine, () => `the alarm is due at ${dueAtMs}, not ${mine}`);
  const { nowMs } = model;
  const wakeAtMs = nextWakeAtMs(state, nowMs);
  must(
    "timers",
    (wakeAtMs === null) === (model.waiters.length === 0),
    () => `the queue wakes at ${wakeAtMs}`,
  );
  if (wakeAtMs === null) return;
  const firstDeadlineAtMs = Math.min(...model.waiters.map(({ deadlineAtMs }) => deadlineAtMs));
  must(
    "timers",
    wakeAtMs <= firstDeadlineAtMs,
    () => `the queue wakes at ${wakeAtMs}, past ${firstDeadlineAtMs}`,
  );
  const turnsAtMs = Math.min(
    Infinity,
    ...[...model.kinds.values()].map(({ span }) => span?.endsAtMs ?? Infinity),
  );
  for (const atMs of [wakeAtMs - 1, Math.floor((nowMs + wakeAtMs) / 2)]) {
    if (atMs <= nowMs || atMs >= turnsAtMs) continue;
    model.nowMs = atMs;
    const [first] = turnsOf(model);
    model.nowMs = nowMs;
    must(
      "timers",
      first === undefined,
      () => `${first} could be let in at ${atMs}, and the queue wakes at ${wakeAtMs}`,
    );
  }
}
