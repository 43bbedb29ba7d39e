/**
 * One ledger under watch: deeds are done to its object, the model follows, and everything is checked after each. The
 * same deeds come to the same end, so that a history can be replayed, and cut down to what matters.
 */
import type { Command } from "../../../src/ledger/commands.ts";
import type { LedgerEvent } from "../../../src/ledger/types.ts";
import { balanceOf } from "../../../src/ledger/view.ts";
import { Audit } from "./audit.ts";
import { Broken, checkBalance, checkLease, checkReservation, checkTimers, must, Walk } from "./check.ts";
import type { Coverage } from "./coverage.ts";
import { isOpen, Model, subjectOf } from "./model.ts";
import { type Core, LedgerObject, type Turned } from "./object.ts";

export type Deed =
  /** `dies`: between the decision and its record. */
  | {
      readonly type: "call";
      readonly command: Command;
      readonly nowMs: number;
      readonly dies?: true;
      readonly call?: number | null;
    }
  | { readonly type: "preview"; readonly command: Command; readonly nowMs: number }
  | { readonly type: "alarm"; readonly nowMs: number }
  | { readonly type: "arrive" }
  | { readonly type: "flush" }
  | { readonly type: "crash"; readonly arrives: boolean };

/** What leaves the object: the answer to a call, or word to somebody who waits. */
export interface Parcel {
  readonly call: number | null;
  readonly event: LedgerEvent;
}

interface Outgoing extends Parcel {
  readonly ticket: number;
  /** How much had been promised when it was made. */
  readonly promised: number;
}

/** What is an answer only, or of the queue, is not recorded. */
const isRecorded = ({ type }: LedgerEvent): boolean =>
  type !== "unchanged" && type !== "queued" && type !== "left";

/** Lost with a crash, these lose nothing that was promised. */
const isRider = (event: LedgerEvent): boolean =>
  event.type === "captured" || event.type === "refused" || (event.type === "ran" && !event.dispatches);

const FULL_CHECK_EVERY = 250;
const TIMERS_CHECK_EVERY = 4;
const CRASHES_PER_WHOLE_FOLD = 8;

export class Stage {
  readonly object: LedgerObject;
  readonly model = new Model();
  readonly #coverage: Coverage;
  #audit = new Audit();
  readonly #history: LedgerEvent[] = [];
  /** Events of this life and those before it that were promised to somebody, in order. */
  #promises: LedgerEvent[] = [];
  #durablePromises = 0;
  #outgoing: Outgoing[] = [];
  readonly #expected = new Set<string>();
  #watched: LedgerEvent[] = [];
  readonly #fullCheckEvery: number;
  #deeds = 0;
  #crashes = 0;
  /** So much of the history is to be on the disk when nothing is under way. */
  #flushed = 0;

  constructor(core: Core, coverage: Coverage, fullCheckEvery = FULL_CHECK_EVERY) {
    this.#fullCheckEvery = fullCheckEvery;
    this.object = new LedgerObject(core);
    this.#coverage = coverage;
  }

  /** The events from here on, for whoever tells the story. */
  watch(): () => readonly LedgerEvent[] {
    this.#watched = [];
    return () => this.#watched;
  }

  /** Does one thing, checks everything, and gives what may leave. */
  do(deed: Deed): { readonly turned: Turned | null; readonly parcels: readonly Parcel[] } {
    this.#deeds += 1;
    let turned: Turned | null = null;
    try {
      turned = this.#do(deed);
    } catch (error) {
      if (error instanceof Broken) throw error;
      throw new Broken("throws", error instanceof Error ? (error.stack ?? error.message) : String(error));
    }
    if (this.#deeds % this.#fullCheckEvery === 0) this.#checkAll();
    return { turned, parcels: this.#leave() };
  }

  #do(deed: Deed): Turned | null {
    const { object, model } = this;
    switch (deed.type) {
      case "call":
      case "alarm": {
        const command = deed.type === "call" ? deed.command : null;
        const turned = this.#turn(command, deed.nowMs);
        if (deed.type === "call" && deed.dies === true) {
          this.#coverage.count("crash before the write");
          this.#crash(false);
          return turned;
        }
        this.#record(turned, deed.type === "call" ? (deed.call ?? null) : null);
        return turned;
      }
      case "preview":
        return this.#preview(deed.command, deed.nowMs);
      case "arrive":
        if (object.arrive(model.mark())) this.#settleDown();
        return null;
      case "flush":
        object.flush(model.mark());
        if (object.isWriting) this.#flushed = this.#history.length;
        return null;
      case "crash": {
        const how = object.isWriting ? `write under way, ${deed.arrives ? "kept" : "lost"}` : "idle";
        this.#coverage.count(`crash ${how}`);
        if (object.hasRiders) this.#coverage.count("crash riders lost");
        if (model.waiters.length > 0) this.#coverage.count("crash queue lost");
        this.#crash(deed.arrives);
        return null;
      }
    }
  }

  #turn(command: Command | null, nowMs: number): Turned {
    const { object, model } = this;
    const turned = object.turn(command, nowMs);
    this.#watched = [...turned.events];
    const walk = new Walk(model, object.state, turned.events, this.#coverage);
    walk.turn(command, nowMs);
    must(
      "turn",
      turned.reply === null || turned.events.includes(turned.reply),
      () => "the answer is no event of its turn",
    );
    this.#hear(turned.events);
    this.#audit.balance(object.state);
    for (const id of walk.touched) checkLease(model, object.state, id);
    const subject = command === null ? null : subjectOf(command);
    if (subject !== null) checkReservation(model, object.state, subject);
    checkBalance(model, balanceOf(object.state, "acme"));
    if (this.#deeds % Math.min(TIMERS_CHECK_EVERY, this.#fullCheckEvery) === 0)
      checkTimers(model, object.state);
    return turned;
  }

  #hear(events: readonly LedgerEvent[]): void {
    for (const event of events) {
      this.#audit.read(event);
      this.#history.push(event);
    }
  }

  /** What would be decided: I9 for the question itself, while what was due has happened. */
  #preview(command: Command, nowMs: number): Turned {
    const { object, model } = this;
    const { events, reply } = object.preview(command, nowMs);
    this.#watched = reply === null ? [...events] : [...events, reply];
    const walk = new Walk(model, object.state, events, this.#coverage);
    walk.turn(null, nowMs);
    this.#hear(events);
    const [mark, waiters] = [model.mark(), model.waiters];
    if (reply !== null) new Walk(model, object.state, [reply], this.#coverage).preview(command);
    model.backTo(mark);
    model.waiters = waiters;
    checkBalance(model, balanceOf(object.state, "acme"));
    const turned = { events, reply: null };
    this.#record(turned, null);
    return turned;
  }

  #record({ events, reply }: Turned, call: number | null): void {
    const { object, model } = this;
    for (const event of events) if (event.type === "queued") this.#expected.add(event.requestId);
    for (const event of events) if (isRecorded(event) && !isRider(event)) this.#promises.push(event);
    const ticket = object.commit(events, model.mark());
    const promised = this.#promises.length;
    for (const event of events) {
      if (event.type !== "reserved" && event.type !== "refused") continue;
      if (event.requestId === null || !this.#expected.delete(event.requestId)) continue;
      // A refusal promises nothing, and need not wait for its record.
      const isFree = event.type === "refused";
      const visible = isFree ? object.begun : ticket;
      this.#outgoing.push({ call: null, event, ticket: visible, promised: isFree ? 0 : promised });
    }
    if (reply !== null) this.#outgoing.push({ call, event: reply, ticket, promised });
  }

  /** I8: nothing is seen outside before all that was promised until then is durable. */
  #leave(): Parcel[] {
    const { object } = this;
    const leaving = this.#outgoing.filter(({ ticket }) => ticket <= object.durableWrites);
    this.#outgoing = this.#outgoing.filter(({ ticket }) => ticket > object.durableWrites);
    must(
      "I8",
      object.isWriting || this.#outgoing.length === 0,
      () => "an answer waits for a write that nobody begins",
    );
    if (leaving.length === 0) return [];
    for (let next = this.#promises[this.#durablePromises]; next !== undefined; ) {
      if (!object.isRecorded(next)) break;
      this.#durablePromises += 1;
      next = this.#promises[this.#durablePromises];
    }
    for (const { event, promised } of leaving)
      must(
        "I8",
        this.#durablePromises >= promised,
        () => `${event.type} is seen while ${this.#promises[this.#durablePromises]?.type} is not durable`,
      );
    return leaving;
  }

  /** That a call runs is told by its next capture as well, and a flood of refusals is no story. */
  #isDone(event: LedgerEvent): boolean {
    const isSlow = event.type === "ran" || event.type === "refused" || !isRecorded(event);
    return isSlow || this.object.isRecorded(event);
  }

  #crash(arrives: boolean): void {
    const { object, model } = this;
    this.#crashes += 1;
    const seen = this.#durablePromises;
    const { mark, nowMs } = object.crash(arrives);
    if (object.durableWrites >= 25) this.#coverage.count("crash from a checkpoint");
    model.backTo(mark);
    model.waiters = [];
    model.nowMs = nowMs;
    this.#outgoing = [];
    this.#expected.clear();
    const kept = this.#promises.filter((event) => object.isRecorded(event));
    must("I8", kept.length >= seen, () => "what was seen is lost");
    this.#promises = kept;
    this.#durablePromises = this.#promises.length;
    this.#audit = new Audit();
    const durable = this.#history.filter((event) => object.isRecorded(event));
    this.#flushed = 0;
    this.#history.splice(0, this.#history.length, ...durable);
    for (const event of durable) this.#audit.read(event);
    this.#checkAll();
    if (this.#crashes % CRASHES_PER_WHOLE_FOLD === 0)
      must(
        "I8",
        object.recordAgrees(),
        () => "the checkpoint and its tail do not tell what the whole record tells",
      );
  }

  /** After a write: memory is the fold of the record, unless something rides or gathers. */
  #settleDown(): void {
    const { object, model } = this;
    model.forgetBefore(object.durableMark);
    if (!object.isWriting) {
      const left = this.#history.slice(0, this.#flushed).find((event) => !this.#isDone(event));
      must("I8", left === undefined, () => `${left?.type} still rides after its time`);
      this.#flushed = 0;
    }
    if (this.#deeds % 16 === 0 && object.durableMark === model.mark() && !object.isWriting)
      must("I8", object.memoryAgrees(), () => "memory is not the fold of its record");
  }

  #checkAll(): void {
    const { object, model } = this;
    const { state } = object;
    for (const id of new Set([...model.leases.keys(), ...state.leases.keys()])) checkLease(model, state, id);
    checkBalance(model, balanceOf(state, "acme"));
    must("time", state.nowMs === model.nowMs, () => `it is ${state.nowMs}, not ${model.nowMs}`);
    const due = [...model.leases.values()]
      .filter((lease) => isOpen(lease))
      .map(({ expiresAtMs }) => expiresAtMs);
    must(
      "open",
      due.length === [...state.open.values()].reduce((sum, { length }) => sum + length, 0),
      () => "lines differ",
    );
  }
}
