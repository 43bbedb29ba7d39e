/**
 * The shell around one tenant's ledger: it brings the clock, the record and the alarm, and decides nothing.
 * Every call is one synchronous turn (sweep, decide, evolve, record) with no await inside, so the
 * object's single thread is the lock; the platform's output gate holds the reply until the record is durable.
 */
import { DurableObject, RpcTarget } from "cloudflare:workers";
import type { LedgerState } from "../src/ledger/state.ts";
import { nextDueAtMs, sweep, turn } from "../src/ledger/turn.ts";
import {
  type Command,
  isRecorded,
  type LeaseCommand,
  type LedgerEvent,
  type Reserve,
  type SetPolicy,
} from "../src/ledger/types.ts";
import { type Balance, balanceOf, type Reservation, reservationOf } from "../src/ledger/view.ts";
import { LedgerStore } from "./ledger-store.ts";

/** An alarm that finds more due than one sweep takes comes back after this; also the stop to a hot loop. */
const ALARM_AGAIN_MS = 1_000;

export class TenantLedger extends DurableObject {
  readonly #store: LedgerStore;
  readonly #state: LedgerState;
  readonly #tenant: string;
  /** What the platform's alarm is set to, so that an unchanged one is never written; null for none. */
  #alarmAtMs: number | null = null;

  constructor(ctx: DurableObjectState, env: Cloudflare.Env) {
    super(ctx, env);
    this.#tenant = (ctx.id.name ?? ctx.id.toString()).replace(/^v1:/, "");
    this.#store = new LedgerStore(ctx.storage.sql);
    this.#state = this.#store.load();
    // Another life of this object may have died between record and alarm.
    this.#arm();
  }

  /** One request's session. Opened first and pipelined upon: the whole request is one billed call. */
  open(): LedgerSession {
    return new LedgerSession((command) => this.run(command));
  }

  /** The same, without a session: for a caller whose session broke. */
  run(command: Command): LedgerEvent {
    return this.#recorded(() => {
      const { events, reply } = turn(this.#state, command, Date.now());
      return { events, result: reply };
    });
  }

  balance(): Balance {
    return this.#swept(() => balanceOf(this.#state, this.#tenant));
  }

  reservation(requestId: string): Reservation | null {
    return this.#swept(() => reservationOf(this.#state, requestId));
  }

  /** At least once, at most a minute late: only a reminder, for the inline sweep is what correctness rests on. */
  override alarm(): void {
    this.#alarmAtMs = null;
    this.#swept(() => undefined);
    // Also when nothing was due: the head may have been renewed since.
    this.#arm();
  }

  #swept<T>(read: () => T): T {
    return this.#recorded(() => {
      const events = sweep(this.#state, Date.now());
      return { events, result: read() };
    });
  }

  /** Whatever happens between the first change of memory and the record, memory may not stay ahead of it. */
  #recorded<T>(change: () => { readonly events: readonly LedgerEvent[]; readonly result: T }): T {
    try {
      const { events, result } = change();
      const recorded = events.filter(isRecorded);
      if (recorded.length > 0) {
        this.#store.record(recorded, this.#state);
        this.#arm();
      }
      return result;
    } catch (error) {
      // A statement that throws does not reset the object by itself.
      this.ctx.abort(`the turn could not be recorded: ${String(error)}`);
      throw error;
    }
  }

  /** Moving an alarm earlier costs a round trip, so one that fires too early is left to fire and re-arm. */
  #arm(): void {
    const dueAtMs = nextDueAtMs(this.#state);
    if (dueAtMs === null || (this.#alarmAtMs !== null && this.#alarmAtMs <= dueAtMs)) return;
    this.#alarmAtMs = Math.max(dueAtMs, Date.now() + ALARM_AGAIN_MS);
    this.ctx.waitUntil(this.ctx.storage.setAlarm(this.#alarmAtMs));
  }
}

/** A request's line to its ledger. Its end is noticed even if its owner dies without a word. */
export class LedgerSession extends RpcTarget {
  readonly #run: (command: Command) => LedgerEvent;
  #requestId: string | null = null;

  constructor(run: (command: Command) => LedgerEvent) {
    super();
    this.#run = run;
  }

  reserve(command: Reserve): LedgerEvent {
    this.#requestId = command.requestId;
    return this.#run(command);
  }

  run(command: LeaseCommand | SetPolicy): LedgerEvent {
    return this.#run(command);
  }

  /** The second net under a holder that vanished: nothing to do for a lease that was settled or released. */
  [Symbol.dispose](): void {
    if (this.#requestId !== null)
      this.#run({ type: "expire", requestId: this.#requestId, cause: "session_lost" });
  }
}
