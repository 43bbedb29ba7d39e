/**
 * A second reader of the events, who knows no levels: it follows the words of the invariants and nothing else.
 *
 *   I3  a lease is settled once, and corrected at most once after it
 *   I4  over any interval, what was charged net is at most the level at its start, what refilled, and overruns
 *   I6  nothing that may have been sent is given back without evidence; what never left goes back whole
 *   I7  time and fences only rise
 */
import type { LedgerState } from "../../../src/ledger/state.ts";
import type { LedgerEvent, Move } from "../../../src/ledger/types.ts";
import { must } from "./check.ts";
import { KEPT_MS } from "./model.ts";

interface Story {
  sent: boolean;
  /** Given back; usage that comes all the same is charged. */
  over: boolean;
  fence: number;
  /** It may be forgotten so long after this. */
  closedAtMs: number;
  settled: number;
  corrected: number;
  readonly held: Map<string, number>;
}

interface Interval {
  readonly generation: number;
  readonly fromMs: number;
  readonly level: number;
  readonly refillPerMinute: number;
  net: number;
  overrun: number;
}

/** As long as an interval may be before the next begins. */
const EVENTS_PER_INTERVAL = 60;

export class Audit {
  readonly #stories = new Map<string, Story>();
  #intervals = new Map<string, Interval>();
  #nowMs = 0;
  #seen = 0;

  /** One more event, in the order of the record. */
  read(event: LedgerEvent): void {
    must("I7", event.atMs >= this.#nowMs, () => `${event.type} at ${event.atMs}, after ${this.#nowMs}`);
    this.#nowMs = event.atMs;
    this.#seen += 1;
    if (event.type === "policy_set" || event.type === "window_turned") this.#intervals.clear();
    if (!("fence" in event) || event.type === "unchanged") return;
    const id = event.requestId;
    const story = event.type === "reserved" ? this.#begin(event) : this.#stories.get(id);
    if (story === undefined)
      return must("I3", false, () => `${event.type} of ${id}, which was never reserved`);
    must("I7", event.fence >= story.fence, () => `${id}: fence ${event.fence} after ${story.fence}`);
    story.fence = event.fence;
    if (event.type === "settled" || event.type === "released" || event.type === "expired")
      story.closedAtMs = event.type === "expired" && event.to === "RECONCILING" ? Infinity : event.atMs;
    this.#follow(story, event);
  }

  #begin(event: Extract<LedgerEvent, { type: "reserved" }>): Story {
    const before = this.#stories.get(event.requestId);
    const isForgotten = before !== undefined && event.atMs >= before.closedAtMs + KEPT_MS;
    must("I3", before === undefined || isForgotten, () => `${event.requestId} is reserved again`);
    const held = new Map(event.charges.map(({ limit, amount }) => [limit, amount]));
    const story = {
      sent: event.state !== "RESERVED",
      over: false,
      closedAtMs: Infinity,
      fence: 1,
      settled: 0,
      corrected: 0,
      held,
    };
    this.#stories.set(event.requestId, story);
    for (const { limit, amount } of event.charges) this.#charge(limit, amount, 0);
    return story;
  }

  #follow(story: Story, event: LedgerEvent): void {
    switch (event.type) {
      case "dispatched":
        story.sent = true;
        return;
      case "ran":
        story.sent = true;
        return;
      case "topped_up":
        must("I6", story.sent, () => `${event.requestId} grows before it was sent`);
        for (const { limit, amount } of event.charges) {
          story.held.set(limit, (story.held.get(limit) ?? 0) + amount);
          this.#charge(limit, amount, 0);
        }
        return;
      case "settled":
        story.settled += 1;
        must("I3", story.settled === 1, () => `${event.requestId} is settled ${story.settled} times`);
        return this.#moved(story, event.moves);
      case "corrected":
        story.corrected += 1;
        must(
          "I3",
          story.settled === 1 && story.corrected === 1,
          () => `${event.requestId} is corrected again`,
        );
        return this.#moved(story, event.moves);
      case "released": {
        story.over = true;
        const isEvident = event.evidence === "not_sent" || event.evidence === "provider_refused";
        must("I6", story.sent === isEvident, () => `${event.requestId} is given back: ${event.evidence}`);
        return this.#moved(story, event.moves);
      }
      case "expired":
        story.over = event.to === "RELEASED";
        must(
          "I6",
          story.sent === (event.to === "RECONCILING"),
          () => `${event.requestId} expires to ${event.to}`,
        );
        return this.#moved(story, event.moves);
      case "captured":
        return this.#moved(story, event.moves);
      default:
        return;
    }
  }

  #moved(story: Story, moves: readonly Move[]): void {
    for (const { limit, returned, spent, credited } of moves) {
      const held = (story.held.get(limit) ?? 0) - returned;
      must("I2", held >= 0, () => `${limit} gets back more than was held`);
      story.held.set(limit, held);
      this.#charge(limit, spent - returned - credited, Math.max(0, spent - returned));
    }
  }

  #charge(limit: string, net: number, overrun: number): void {
    const interval = this.#intervals.get(limit);
    if (interval === undefined) return;
    interval.net += net;
    interval.overrun += overrun;
  }

  /** After each turn: I4 of every bucket, since the interval began; a new one begins now and then. */
  balance(state: LedgerState): void {
    const isOver = this.#seen >= EVENTS_PER_INTERVAL;
    if (isOver) this.#seen = 0;
    for (const { key, definition, level, asOfMs } of state.limits.values()) {
      const { spec, generation } = definition;
      if (spec.kind !== "bucket") continue;
      const interval = this.#intervals.get(key);
      if (interval !== undefined && interval.generation === generation) {
        const { fromMs, net, overrun } = interval;
        const refilled = (interval.refillPerMinute * (state.nowMs - fromMs)) / 60_000;
        // What is still in debt gives nothing, and takes nothing either.
        const allowed = Math.max(0, interval.level + refilled) + overrun;
        must("I4", net <= allowed + 1e-6, () => `${key} charged ${net} since ${fromMs}, and had ${allowed}`);
      }
      if (isOver || interval === undefined) {
        const raised = level + spec.refillPerMinute * (state.nowMs - asOfMs);
        const now = Math.min(raised, (spec.capacity ?? 0) * 60_000) / 60_000;
        const { refillPerMinute } = spec;
        const fresh = { generation, fromMs: state.nowMs, level: now, refillPerMinute, net: 0, overrun: 0 };
        this.#intervals.set(key, fresh);
      }
    }
  }
}
