/**
 * A ledger's object as the shell makes one: turns, group commit, and a record of batches and checkpoints on a disk
 * whose writes take their time. It can die between any two of its steps, and comes back from what was durable.
 */
import { isDeepStrictEqual } from "node:util";
import type { Command } from "../../../src/ledger/commands.ts";
import { evolve } from "../../../src/ledger/evolve.ts";
import { GroupCommit } from "../../../src/ledger/group-commit.ts";
import { restore, type Snapshot, snapshot } from "../../../src/ledger/snapshot.ts";
import { emptyState, type Lease, type LedgerState } from "../../../src/ledger/state.ts";
import { preview, sweep, turn } from "../../../src/ledger/turn.ts";
import type { LedgerEvent, RecordedEvent } from "../../../src/ledger/types.ts";

/** What the world plays with; a test gives it one that is broken on purpose. */
export interface Core {
  readonly turn: typeof turn;
  readonly sweep: typeof sweep;
  readonly preview: typeof preview;
  readonly evolve: typeof evolve;
  readonly commit: () => GroupCommit;
}

export const CORE: Core = { turn, sweep, preview, evolve, commit: () => new GroupCommit() };

export interface Turned {
  readonly events: readonly LedgerEvent[];
  /** Null for an alarm: nobody asked. */
  readonly reply: LedgerEvent | null;
}

interface Write {
  readonly text: string;
  readonly events: readonly RecordedEvent[];
  readonly checkpoint: string | null;
  /** Where the model stood when this was all that had happened. */
  readonly mark: number;
  readonly nowMs: number;
}

const CHECKPOINT_EVERY_WRITES = 25;

export class LedgerObject {
  state: LedgerState = emptyState();
  readonly #core: Core;
  #commit: GroupCommit;
  readonly #disk: Write[] = [];
  readonly #durable = new Set<LedgerEvent>();
  #underWay: Write | null = null;
  /** Of lives before this one. */
  #writesBefore = 0;
  #recordedAtMs = 0;

  constructor(core: Core) {
    this.#core = core;
    this.#commit = core.commit();
  }

  /** One synchronous turn, not yet on its way to the record. */
  turn(command: Command | null, nowMs: number): Turned {
    if (command === null) return { events: this.#core.sweep(this.state, nowMs), reply: null };
    return this.#core.turn(this.state, command, nowMs);
  }

  preview(command: Command, nowMs: number): Turned {
    return this.#core.preview(this.state, command, nowMs);
  }

  /** Records what a turn did, or joins it to the next record. The answer may go once that many writes are durable. */
  commit(events: readonly LedgerEvent[], mark: number): number {
    const { write, ticket } = this.#commit.add(events);
    if (write !== null) this.#begin(write, mark);
    return this.#writesBefore + ticket;
  }

  /** What leaves now waits for all writes that have begun. */
  get begun(): number {
    return this.#writesBefore + this.#commit.writes;
  }

  get durableWrites(): number {
    return this.#disk.length;
  }

  get isWriting(): boolean {
    return this.#underWay !== null;
  }

  get hasRiders(): boolean {
    return this.#commit.hasImpatientRiders;
  }

  /** Everything is on the disk; riders are not looked for. */
  isRecorded(event: LedgerEvent): boolean {
    return this.#durable.has(event);
  }

  /** The write under way reaches the disk, and the next may begin. False when there was none. */
  arrive(mark: number): boolean {
    const write = this.#underWay;
    if (write === null) return false;
    this.#keep(write);
    const next = this.#commit.arrived();
    if (next !== null) this.#begin(next, mark);
    return true;
  }

  /** The riders have waited for long enough. */
  flush(mark: number): void {
    const write = this.#commit.flush();
    if (write !== null) this.#begin(write, mark);
  }

  /** Memory is gone; what was under way has arrived, or has not. Tells to where the model must go back. */
  crash(arrives: boolean): { readonly mark: number; readonly nowMs: number } {
    if (this.#underWay !== null && arrives) this.#keep(this.#underWay);
    this.#underWay = null;
    this.#commit = this.#core.commit();
    this.#writesBefore = this.#disk.length;
    this.state = this.#load();
    const last = this.#disk.at(-1) ?? { mark: 0, nowMs: 0 };
    this.#recordedAtMs = last.nowMs;
    return last;
  }

  /** Where the model may forget how to undo: this is durable. */
  get durableMark(): number {
    return this.#disk.at(-1)?.mark ?? 0;
  }

  /** What a checkpoint and its tail tell is what the whole record tells; and so does memory, unless it is ahead. */
  recordAgrees(): boolean {
    const whole = emptyState();
    for (const { text } of this.#disk) this.#fold(whole, text);
    return isDeepStrictEqual(plain(whole), plain(this.#load()));
  }

  memoryAgrees(): boolean {
    return isDeepStrictEqual(plain(this.state), plain(this.#load()));
  }

  #begin(events: readonly RecordedEvent[], mark: number): void {
    for (const { atMs } of events) this.#recordedAtMs = Math.max(this.#recordedAtMs, atMs);
    const due = (this.#disk.length + 1) % CHECKPOINT_EVERY_WRITES === 0;
    const checkpoint = due ? JSON.stringify(snapshot(this.state)) : null;
    if (due) this.#recordedAtMs = this.state.nowMs;
    this.#underWay = { text: JSON.stringify(events), events, checkpoint, mark, nowMs: this.#recordedAtMs };
  }

  #keep(write: Write): void {
    this.#disk.push(write);
    this.#underWay = null;
    for (const event of write.events) this.#durable.add(event);
  }

  #load(): LedgerState {
    const from = this.#disk.findLastIndex(({ checkpoint }) => checkpoint !== null);
    const checkpoint = this.#disk[from]?.checkpoint ?? null;
    const state = checkpoint === null ? emptyState() : restore(JSON.parse(checkpoint) as Snapshot);
    for (const { text } of this.#disk.slice(from + 1)) this.#fold(state, text);
    return state;
  }

  #fold(state: LedgerState, text: string): void {
    for (const event of JSON.parse(text) as RecordedEvent[]) this.#core.evolve(state, event);
  }
}

/** Leases by the line they stand in; time apart, for a call that did nothing moves it and is not recorded. */
function plain(state: LedgerState): object {
  const line = (queue: Iterable<Lease>) =>
    [...queue].map((lease) => ({ ...lease, next: null, previous: null }));
  const lines = (queues: ReadonlyMap<number, Iterable<Lease>>) =>
    Object.fromEntries(
      [...queues].flatMap(([ms, queue]) => (line(queue).length > 0 ? [[ms, line(queue)]] : [])),
    );
  const { policy, generation, means, inFlightTokens, reconcilingTokens } = state;
  const all = {
    open: lines(state.open),
    reconciling: lines(state.reconciling),
    closed: line(state.closed),
    policy,
    generation,
    means,
    inFlightTokens,
    reconcilingTokens,
    definitions: [...state.definitions],
    limits: [...state.limits],
    keys: [...state.byIdempotencyKey],
  };
  return JSON.parse(JSON.stringify(all)) as object;
}
