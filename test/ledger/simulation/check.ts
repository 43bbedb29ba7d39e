/** Holds what the ledger did against what the model says it must have done, and its numbers against the model's. */
import type { Command } from "../../../src/ledger/commands.ts";
import { capacityOf, unitsOf } from "../../../src/ledger/limits.ts";
import type { Lease, LedgerState } from "../../../src/ledger/state.ts";
import type { LedgerEvent } from "../../../src/ledger/types.ts";
import { limitNameOf } from "../../../src/policy/limit-schema.ts";
import { type Model, type ModelLease, tokens } from "./model.ts";
import { capacity, free } from "./model-limits.ts";
import { difference, predict } from "./predict.ts";
import { nextIn } from "./predict-reserve.ts";

/** What must hold and does not. */
export class Broken extends Error {
  override readonly name = "Broken";
}

const must = (holds: boolean, what: string): void => {
  if (!holds) throw new Broken(what);
};

/** Walks a call's events: what was due, the command's own, and who was let in. The model follows. */
export function checkTurn(
  model: Model,
  command: Command | null,
  events: readonly LedgerEvent[],
  nowMs: number,
  /** Brings the model what the ledger has learnt by the command. */
  learn: () => void,
): void {
  const walk = new Walk(model, events);
  model.nowMs = Math.max(model.nowMs, nowMs);
  for (const kind of model.kinds.values()) {
    if (kind.spec.kind === "window" && kind.endsAtMs <= model.nowMs)
      walk.next({ type: "turn_window", limit: kind.spec.name });
  }
  walk.due(
    "expired",
    (lease) => !["SETTLED", "RELEASED", "RECONCILING"].includes(lease.state),
    (requestId) => ({
      type: "expire",
      requestId,
      cause: "deadline",
    }),
  );
  walk.due(
    "settled",
    (lease) => lease.state === "RECONCILING",
    (requestId) => ({
      type: "resolve",
      requestId,
      usage: null,
    }),
  );
  for (const waiter of model.waiters.slice())
    if (waiter.deadlineAtMs <= model.nowMs)
      walk.next({ type: "leave", requestId: waiter.command.requestId, cause: "deadline" });
  walk.admits();
  if (command !== null) {
    walk.next(command);
    learn();
    walk.admits();
  }
  walk.end();
}

class Walk {
  readonly #model: Model;
  readonly #events: readonly LedgerEvent[];
  #at = 0;

  constructor(model: Model, events: readonly LedgerEvent[]) {
    this.#model = model;
    this.#events = events;
  }

  next(command: Command): void {
    const event = this.#events[this.#at];
    if (event === undefined) throw new Broken(`no event for ${JSON.stringify(command)}`);
    this.#at += 1;
    const expected = predict(this.#model, command, event);
    const wrong = difference(expected, event);
    must(wrong === null, `${command.type} came to ${event.type}: ${wrong}`);
    must(event.atMs === this.#model.nowMs, `I7 time: ${event.atMs}, not ${this.#model.nowMs}`);
  }

  /** In the ledger's own order, all that are due and no other. */
  due(
    type: LedgerEvent["type"],
    of: (lease: ModelLease) => boolean,
    commandFor: (id: string) => Command,
  ): void {
    const due = new Set<string>();
    for (const lease of this.#model.leases.values())
      if (of(lease) && lease.expiresAtMs <= this.#model.nowMs) due.add(lease.id);
    while (due.size > 0) {
      const event = this.#events[this.#at];
      const id = event !== undefined && "requestId" in event ? event.requestId : null;
      if (event?.type !== type || id === null || !due.has(id))
        throw new Broken(`${[...due].join()} is due to be ${type}, and ${event?.type ?? "nothing"} came`);
      due.delete(id);
      this.next(commandFor(id));
    }
  }

  admits(): void {
    if (this.#model.waiters.length === 0) return;
    for (const { requestId, never } of nextIn(this.#model)) {
      const event = this.#events[this.#at];
      const comes =
        event?.type === "refused" && event.requestId === requestId && event.code === "request_too_large";
      if (comes || !never) this.next({ type: "admit", requestId });
    }
  }

  end(): void {
    const more = this.#events[this.#at];
    must(more === undefined, `an event that nobody asked for: ${JSON.stringify(more)}`);
  }
}

/** I2, I5, I9: every limit stands where the model says, whatever was decided. */
export function checkLimits(model: Model, state: LedgerState): void {
  for (const limit of state.limits.values()) {
    const bound = model.bounds.get(limit.key);
    const kind = model.kinds.get(limitNameOf(limit.key));
    if (kind === undefined) throw new Broken(`a limit that the policy does not have: ${limit.key}`);
    const there = bound ?? model.bound(limit.key, kind);
    must(limit.held === there.held, `${limit.key} holds ${limit.held}, not ${there.held}`);
    const most = capacityOf(limit);
    must(most === capacity(there), `${limit.key} has capacity ${most}, not ${capacity(there)}`);
    if (most === null) continue;
    const level = unitsOf(limit, model.nowMs);
    must(
      level === free(there, model.nowMs),
      `I2 ${limit.key} is at ${level}, not ${free(there, model.nowMs)}`,
    );
    must(level <= most, `I5 ${limit.key} is at ${level} of ${most}`);
  }
  // What the ledger has forgotten must have been at rest.
  for (const [key, bound] of model.bounds)
    if (!state.limits.has(key))
      must(bound.held === 0 && free(bound, model.nowMs) === capacity(bound), `${key} was forgotten`);
  must(
    state.queue.byId.size === model.waiters.length,
    `${state.queue.byId.size} wait, not ${model.waiters.length}`,
  );
}

/** I1, I3: one lease, member by member. */
export function checkLease(model: Model, state: LedgerState, id: string): void {
  const lease = state.leases.get(id);
  const there = model.leases.get(id);
  must(
    (lease === undefined) === (there === undefined),
    `${id} is ${lease?.state ?? "unknown"}, not ${there?.state ?? "unknown"}`,
  );
  if (lease === undefined || there === undefined) return;
  const [found, expected] = [factsOf(lease), factsOfModel(there)].map((facts) => JSON.stringify(facts));
  must(found === expected, `${id} is ${found}, not ${expected}`);
}

function factsOf(lease: Lease): unknown[] {
  const {
    fence,
    state,
    hold,
    captured,
    charges,
    expiresAtMs,
    lastUsageEventId,
    providerRequestId,
    settlement,
  } = lease;
  return [
    fence,
    state,
    tokens(hold),
    tokens(captured),
    charges.map(({ limit, amount, spent }) => [limit, amount, spent]),
    expiresAtMs,
    lastUsageEventId,
    providerRequestId,
    settlement === null ? null : [tokens(settlement.usage), settlement.basis, settlement.corrected],
  ];
}

function factsOfModel(lease: ModelLease): unknown[] {
  const { fence, state, hold, captured, charges, expiresAtMs, lastUsageEventId, providerRequestId, settled } =
    lease;
  return [
    fence,
    state,
    tokens(hold),
    tokens(captured),
    charges.map(({ limit, amount, spent }) => [limit, amount, spent]),
    expiresAtMs,
    lastUsageEventId,
    providerRequestId,
    settled === null ? null : [tokens(settled.usage), settled.basis, settled.corrected],
  ];
}

export function checkAll(model: Model, state: LedgerState): void {
  checkLimits(model, state);
  for (const id of new Set([...model.leases.keys(), ...state.leases.keys()])) checkLease(model, state, id);
}
