/**
 * A ledger's object as the shell makes one: turns, group commit and a record, on a disk whose writes take their
 * time. It can die between any two of its steps.
 */
import { isDeepStrictEqual } from "node:util";
import type { Command } from "../../../src/ledger/commands.ts";
import { evolve } from "../../../src/ledger/evolve.ts";
import { GroupCommit } from "../../../src/ledger/group-commit.ts";
import { restore, type Snapshot, snapshot } from "../../../src/ledger/snapshot.ts";
import { emptyState, type LedgerState } from "../../../src/ledger/state.ts";
import { sweep, turn } from "../../../src/ledger/turn.ts";
import type { LedgerEvent, RecordedEvent } from "../../../src/ledger/types.ts";
import type { Model } from "./model.ts";

/** What the world plays with; a test gives it a core that is broken on purpose. */
export interface Core {
  readonly turn: typeof turn;
  readonly sweep: typeof sweep;
  readonly commit: () => GroupCommit;
}

export const CORE: Core = { turn, sweep, commit: () => new GroupCommit() };

interface Write {
  readonly events: string;
  readonly checkpoint: string | null;
  /** The model, when it was as this write will leave the record. */
  readonly model: Model;
}

const CHECKPOINT_EVERY_WRITES = 25;

export class LedgerObject {
  state: LedgerState = emptyState();
  readonly #core: Core;
  #commit: GroupCommit;
  readonly #durable: Write[] = [];
  #underWay: Write | null = null;
  /** Writes of lives before this one. */
  #writesBefore = 0;
  #recordedAtMs = 0;

  constructor(core: Core) {
    this.#core = core;
    this.#commit = core.commit();
  }

  /** One synchronous call. `model` must be brought to the state after it before `commit` is called. */
  call(
    command: Command | null,
    nowMs: number,
  ): { readonly events: readonly LedgerEvent[]; readonly reply: LedgerEvent | null } {
    if (command === null) return { events: this.#core.sweep(this.state, nowMs), reply: null };
    return this.#core.turn(this.state, command, nowMs);
  }

  /** Records what a call did, or joins it to the next record. */
  commit(events: readonly LedgerEvent[], model: Model): number {
    const { write, ticket } = this.#commit.add(events);
    if (write !== null) this.#begin(write, model);
    return this.#writesBefore + ticket;
  }

  /** The write under way reaches the disk, and the next may begin. */
  arrive(model: Model): void {
    if (this.#underWay === null) return;
    this.#durable.push(this.#underWay);
    this.#underWay = null;
    const next = this.#commit.arrived();
    if (next !== null) this.#begin(next, model);
  }

  /** The riders' time is up. */
  flush(model: Model): void {
    const write = this.#commit.flush();
    if (write !== null) this.#begin(write, model);
  }

  get durableWrites(): number {
    return this.#durable.length;
  }

  get writing(): boolean {
    return this.#underWay !== null;
  }

  /** Whether the record has it, where its answer said that it would be. */
  holds(event: LedgerEvent, ticket: number): boolean {
    return this.#durable[ticket - 1]?.events.includes(JSON.stringify(event)) ?? false;
  }

  /** Memory is gone; what was on its way may have arrived or not. Gives the model as the record has it. */
  crash(arrives: boolean): Model | null {
    if (this.#underWay !== null && arrives) this.#durable.push(this.#underWay);
    this.#underWay = null;
    this.#commit = this.#core.commit();
    this.#writesBefore = this.#durable.length;
    this.state = this.#load();
    const last = this.#durable.at(-1)?.model ?? null;
    this.#recordedAtMs = last?.nowMs ?? 0;
    // A copy, for there may be another crash before the next write.
    return last?.copy(last.nowMs) ?? null;
  }

  /** The record, whole and in parts: what a checkpoint and its tail tell is what all events tell. */
  recordAgrees(): boolean {
    const folded = emptyState();
    for (const { events } of this.#durable)
      for (const event of JSON.parse(events) as RecordedEvent[]) evolve(folded, event);
    return isDeepStrictEqual(facts(folded), facts(this.#load()));
  }

  #begin(events: readonly RecordedEvent[], model: Model): void {
    for (const event of events) this.#recordedAtMs = Math.max(this.#recordedAtMs, event.atMs);
    const due = (this.#durable.length + 1) % CHECKPOINT_EVERY_WRITES === 0;
    if (due) this.#recordedAtMs = this.state.nowMs;
    this.#underWay = {
      events: JSON.stringify(events),
      checkpoint: due ? JSON.stringify(snapshot(this.state)) : null,
      model: model.copy(this.#recordedAtMs),
    };
  }

  #load(): LedgerState {
    let from = this.#durable.length - 1;
    while (from >= 0 && this.#durable[from]?.checkpoint === null) from -= 1;
    const checkpoint = this.#durable[from]?.checkpoint;
    const state = checkpoint == null ? emptyState() : restore(JSON.parse(checkpoint) as Snapshot);
    for (const { events } of this.#durable.slice(from + 1))
      for (const event of JSON.parse(events) as RecordedEvent[]) evolve(state, event);
    return state;
  }
}

/** All of a state but its clock, and but the order in which its lines stand beside one another. */
function facts(state: LedgerState): object {
  const { nowMs: _, leases, keys, scopes, prices, ...rest } = snapshot(state);
  const lines = new Map<string, unknown[]>();
  for (const record of leases) {
    const named = record[15].map((value, place) => (place % 4 === 0 ? keys[value] : value));
    const told = [
      ...record.slice(0, 3),
      scopes[record[3]],
      record[4],
      prices[record[5]],
      ...record.slice(6, 15),
      named,
      ...record.slice(16),
    ];
    const line = lineOf(record[2], record[8], record[9], record[21]);
    lines.set(line, [...(lines.get(line) ?? []), told]);
  }
  const ordered = [...lines].toSorted(([a], [b]) => (a < b ? -1 : 1));
  return JSON.parse(JSON.stringify({ ...rest, ordered })) as object;
}

function lineOf(state: string, acceptMs: number, ttlMs: number, reconcileMs: number): string {
  if (state === "RECONCILING") return `frozen ${reconcileMs}`;
  if (state === "SETTLED" || state === "RELEASED") return "closed";
  return String(state === "RESERVED" ? acceptMs : ttlMs);
}
