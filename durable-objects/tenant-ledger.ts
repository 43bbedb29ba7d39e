/**
 * The shell around one tenant's ledger: it brings the clock, the record and the alarm, and decides nothing.
 * Every call is one synchronous turn (sweep, decide, evolve, record or join the next record) with no await
 * inside, so the object's single thread is the lock. An answer leaves when the write that carries what it
 * tells has begun; from there the platform's output gate holds it until that write is durable.
 */
import { DurableObject, RpcTarget } from "cloudflare:workers";
import type { Command, LeaseCommand, Reserve, SetPolicy } from "../src/ledger/commands.ts";
import { GroupCommit } from "../src/ledger/group-commit.ts";
import type { Lease, LedgerState } from "../src/ledger/state.ts";
import { nextDueAtMs, preview, sweep, turn } from "../src/ledger/turn.ts";
import type { LedgerEvent, RecordedEvent } from "../src/ledger/types.ts";
import { type Balance, balanceOf, isHeldBy, type Reservation, reservationOf } from "../src/ledger/view.ts";
import { nextWakeAtMs } from "../src/ledger/waiting.ts";
import { LedgerStore } from "./ledger-store.ts";
import { Reconciler } from "./reconciler.ts";
import { WaitingRoom } from "./waiting-room.ts";

/** An alarm that finds more due than one sweep takes comes back after this; also the stop to a hot loop. */
const ALARM_AGAIN_MS = 1_000;

/** The platform's word; one that is later than this was lost, and is set again. */
const ALARM_LATE_MAX_MS = 60_000;

/** The longest that a capture or a refusal waits for another event's write. */
const RIDE_MAX_MS = 1_000;

/** A command's event, and how the lease stands after it. */
export interface Outcome {
  readonly event: LedgerEvent;
  readonly reservation: Reservation;
}

interface Change<T> {
  readonly events: readonly LedgerEvent[];
  readonly result: T;
}

export class TenantLedger extends DurableObject {
  readonly #store: LedgerStore;
  readonly #state: LedgerState;
  readonly #tenant: string;
  readonly #commit = new GroupCommit();
  readonly #room = new WaitingRoom();
  readonly #reconciler = new Reconciler();
  /** Resolves when the next write begins. */
  #nextWrite = Promise.withResolvers<void>();
  /** What the platform's alarm is set to, so that an unchanged one is never written; null for none. */
  #alarmAtMs: number | null = null;
  #riding: ReturnType<typeof setTimeout> | null = null;
  /** Set while somebody waits: an alarm may be a minute late, and a waiter cannot. */
  #wake: { readonly atMs: number; readonly timer: ReturnType<typeof setTimeout> } | null = null;

  constructor(ctx: DurableObjectState, env: Cloudflare.Env) {
    super(ctx, env);
    this.#tenant = (ctx.id.name ?? ctx.id.toString()).replace(/^v1:/, "");
    this.#store = new LedgerStore(ctx.storage.sql, (step) => ctx.storage.transactionSync(step));
    this.#state = this.#store.load();
    this.#reconciler.begin(this.#state, Date.now());
    // Another life of this object may have died between record and alarm.
    this.#arm();
  }

  /** One request's session. Opened first and pipelined upon: the whole request is one billed call. */
  open(): LedgerSession {
    return new LedgerSession(this, this.#room);
  }

  /** Without a session: for a caller whose session broke, or whose lease outlives the call. */
  run(command: Command): Promise<LedgerEvent> {
    return this.#call(() => {
      const { events, reply } = turn(this.#state, command, Date.now());
      return { events, result: reply };
    });
  }

  /**
   * For a caller who answers for a lease: carried out only if it was reserved under this key and not by the
   * gateway for a call of its own. Null for any other, as for one that does not exist.
   */
  act(command: LeaseCommand, keyId: string): Promise<Outcome | null> {
    return this.#call(() => {
      if (!isHeldBy(this.#state, command.requestId, keyId)) return { events: [], result: null };
      const { events, reply } = turn(this.#state, command, Date.now());
      const reservation = reservationOf(this.#state, command.requestId);
      return { events, result: reservation === null ? null : { event: reply, reservation } };
    });
  }

  /** What would become of the command, which is not carried out. */
  preview(command: Command): Promise<LedgerEvent> {
    return this.#call(() => {
      const { events, reply } = preview(this.#state, command, Date.now());
      return { events, result: reply };
    });
  }

  balance(): Promise<Balance> {
    return this.#swept(() => balanceOf(this.#state, this.#tenant));
  }

  /** With a key: null for a lease that is not that key's. */
  reservation(requestId: string, keyId: string | null = null): Promise<Reservation | null> {
    return this.#swept(() =>
      keyId === null || isHeldBy(this.#state, requestId, keyId)
        ? reservationOf(this.#state, requestId)
        : null,
    );
  }

  /** At least once, at most a minute late: only a reminder, for the inline sweep is what correctness rests on. */
  override async alarm(): Promise<void> {
    this.#alarmAtMs = null;
    await this.#swept(() => undefined);
    for (const lease of this.#reconciler.due(this.#state, Date.now())) this.ctx.waitUntil(this.#ask(lease));
    // Also when nothing was due: the head may have been renewed since.
    this.#arm();
  }

  /** What became of it, from those who can ask; whoever settles it meanwhile was first, and that is that. */
  async #ask({ requestId, scope, providerRequestId }: Lease): Promise<void> {
    try {
      const usage = await this.ctx.exports.OutcomeQuery.ask(scope.model, providerRequestId ?? "");
      if (usage !== null) await this.run({ type: "resolve", requestId, usage });
    } catch (error) {
      console.warn(JSON.stringify({ weir: "outcome_unknown", requestId, error: String(error) }));
    }
  }

  #swept<T>(read: () => T): Promise<T> {
    return this.#call(() => {
      const events = sweep(this.#state, Date.now());
      return { events, result: read() };
    });
  }

  /** Whatever happens between the first change of memory and the record, memory may not stay ahead of it. */
  async #call<T>(change: () => Change<T>): Promise<T> {
    const { events, result, ticket } = this.#guarded(() => {
      const changed = change();
      for (const event of changed.events) if (event.type === "queued") this.#room.expect(event.requestId);
      const added = this.#commit.add(changed.events);
      if (added.write !== null) this.#write(added.write);
      return { ...changed, ticket: added.ticket };
    });
    this.#reconciler.note(events, this.#state, Date.now());
    if (events.length > 0) this.#arm();
    // A refusal promises nothing, and need not wait for its record.
    for (const event of events) if (event.type === "refused") this.#room.tell(event);
    this.#mindRiders();
    this.#mindQueue(events);
    if (ticket > this.#commit.writes) await this.#nextWrite.promise;
    return result;
  }

  #write(events: readonly RecordedEvent[]): void {
    this.#store.write(events, this.#state);
    this.#nextWrite.resolve();
    this.#nextWrite = Promise.withResolvers();
    for (const event of events) if (event.type === "reserved") this.#room.tell(event);
    void this.#arrival();
  }

  async #arrival(): Promise<void> {
    try {
      await this.ctx.storage.sync();
      const next = this.#commit.arrived();
      if (next !== null) this.#write(next);
    } catch (error) {
      this.#abort(error);
    }
  }

  #guarded<T>(step: () => T): T {
    try {
      return step();
    } catch (error) {
      // A statement that throws does not reset the object by itself.
      this.#abort(error);
      throw error;
    }
  }

  #abort(error: unknown): void {
    this.ctx.abort(`what happened could not be recorded: ${String(error)}`);
  }

  #mindRiders(): void {
    if (this.#riding !== null || !this.#commit.hasImpatientRiders) return;
    this.#riding = setTimeout(() => {
      this.#riding = null;
      this.#guarded(() => {
        const write = this.#commit.flush();
        if (write !== null) this.#write(write);
      });
    }, RIDE_MAX_MS);
  }

  #mindQueue(events: readonly LedgerEvent[]): void {
    // Whatever moves may bring a waiter's turn forward, were it by a refund that does not do for it yet.
    const moved = events.some(({ type }) => type !== "unchanged" && type !== "refused");
    if (this.#wake !== null && !moved) return;
    const nowMs = Date.now();
    const atMs = nextWakeAtMs(this.#state, Math.max(nowMs, this.#state.nowMs));
    if (atMs === null || (this.#wake !== null && this.#wake.atMs <= atMs)) return;
    if (this.#wake !== null) clearTimeout(this.#wake.timer);
    const timer = setTimeout(
      () => {
        this.#wake = null;
        void this.#swept(() => undefined);
      },
      Math.max(1, atMs - nowMs),
    );
    this.#wake = { atMs, timer };
  }

  /** Moving an alarm earlier costs a round trip, so one that fires too early is left to fire and re-arm. */
  #arm(): void {
    const leaseAtMs = nextDueAtMs(this.#state);
    const askAtMs = this.#reconciler.nextAtMs();
    const dueAtMs = askAtMs === null ? leaseAtMs : Math.min(askAtMs, leaseAtMs ?? askAtMs);
    if (dueAtMs === null) return;
    const nowMs = Date.now();
    const atMs = Math.max(dueAtMs, nowMs + ALARM_AGAIN_MS);
    const comes = this.#alarmAtMs !== null && this.#alarmAtMs + ALARM_LATE_MAX_MS > nowMs;
    if (comes && this.#alarmAtMs !== null && this.#alarmAtMs <= atMs) return;
    this.#alarmAtMs = atMs;
    this.#store.countAlarm();
    this.ctx.waitUntil(this.ctx.storage.setAlarm(this.#alarmAtMs));
  }
}

/** A request's line to its ledger. Its end is noticed even if its owner dies without a word. */
export class LedgerSession extends RpcTarget {
  readonly #ledger: Pick<TenantLedger, "run">;
  readonly #room: WaitingRoom;
  #requestId: string | null = null;

  constructor(ledger: Pick<TenantLedger, "run">, room: WaitingRoom) {
    super();
    this.#ledger = ledger;
    this.#room = room;
  }

  /** `queued` is an answer too: then `granted` tells how it ends. */
  reserve(command: Reserve): Promise<LedgerEvent> {
    this.#requestId = command.requestId;
    return this.#ledger.run(command);
  }

  /** What became of a queued request: `reserved` or `refused`. Pending until then. */
  granted(): Promise<LedgerEvent> {
    if (this.#requestId === null) throw new Error("nothing was reserved on this session");
    return this.#room.outcome(this.#requestId);
  }

  run(command: LeaseCommand | SetPolicy): Promise<LedgerEvent> {
    return this.#ledger.run(command);
  }

  /** The lease outlives the session: its holder has no line, and only its own deadline. */
  keep(): void {
    this.#requestId = null;
  }

  /** The second net under a holder that vanished: nothing to do for a lease that was settled or released. */
  async [Symbol.dispose](): Promise<void> {
    const requestId = this.#requestId;
    if (requestId === null) return;
    this.#room.forget(requestId);
    await this.#ledger.run({ type: "leave", requestId, cause: "caller_left" });
    await this.#ledger.run({ type: "expire", requestId, cause: "session_lost" });
  }
}
