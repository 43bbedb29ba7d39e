/**
 * One run of the world: clients, a network that loses, delays, repeats and reorders calls and answers, ledgers
 * that die between any two steps, clocks that jump, policies that change. All of it follows from the seed.
 */
import type { Command } from "../../../src/ledger/commands.ts";
import { isRecorded, isRider, type LedgerEvent } from "../../../src/ledger/types.ts";
import type { LedgerPolicy } from "../../../src/policy/resolve.ts";
import { Broken, checkAll, checkLease, checkLimits, checkTurn } from "./check.ts";
import { type Client, newClient, nextOf, reserveBy, settleBy, stray } from "./clients.ts";
import { note, noteEvent, noteState, type Seen } from "./coverage.ts";
import { Model } from "./model.ts";
import { CORE, type Core, LedgerObject } from "./object.ts";
import { somePolicy } from "./policies.ts";
import { Chance } from "./random.ts";

export interface Failure {
  readonly step: number;
  readonly what: string;
  readonly history: readonly string[];
}

export interface Options {
  readonly seed: number;
  readonly steps: number;
  readonly core?: Core;
  readonly leftOut?: ReadonlySet<number>;
  readonly seen?: Seen;
}

/** Null when everything held. */
export function run({ seed, steps, core = CORE, leftOut = new Set(), seen = {} }: Options): Failure | null {
  const worlds = Array.from(
    { length: 1 + (seed % 2) },
    (_, place) => new World(core, seen, `t${place}`, seed),
  );
  const history: string[] = [];
  for (let step = 0; step < steps; step += 1) {
    if (leftOut.has(step)) continue;
    const chance = new Chance(seed, step);
    const world = chance.pick(worlds);
    try {
      const told = world.step(chance, step);
      history.push(`${String(step).padStart(5)} ${world.name} ${told}`);
    } catch (error) {
      const what =
        error instanceof Broken ? error.message : `the ledger threw: ${String((error as Error).stack)}`;
      history.push(`${String(step).padStart(5)} ${world.name} ${world.told}`);
      return { step, what, history };
    }
  }
  const broken = worlds.find((world) => !world.recordAgrees());
  return broken === undefined
    ? null
    : { step: steps, what: `${broken.name}: the record disagrees with itself`, history };
}

interface Answer {
  readonly event: LedgerEvent;
  readonly ticket: number;
}

class World {
  readonly name: string;
  readonly #seen: Seen;
  readonly #object: LedgerObject;
  #model = new Model();
  #nowMs = 10_000_000;
  #epoch = 0;
  /** Few changes and no haste, so that much gets done. */
  readonly #calm: boolean;
  #policy: LedgerPolicy;
  readonly #clients: Client[] = [];
  readonly #calls: Command[] = [];
  #answers: Answer[] = [];
  /** The highest write that carries something promised. */
  #promised = 0;
  #ridersSince = 0;
  told = "";

  constructor(core: Core, seen: Seen, name: string, seed: number) {
    this.name = name;
    this.#calm = seed % 3 === 0;
    this.#seen = seen;
    this.#object = new LedgerObject(core);
    this.#policy = somePolicy(new Chance(seed, -2), 0, this.#calm);
    this.#calls.push({ type: "set_policy", policy: this.#policy });
  }

  step(chance: Chance, step: number): string {
    this.told = "";
    const die = chance.below(100);
    if (die < 6) this.#ask(chance, step);
    else if (die < 40) this.#deliver(chance);
    else if (die < 54) this.#answer(chance);
    else if (die < 72) this.#go(chance);
    else if (die < 79) this.#say(`write arrives`, () => this.#object.arrive(this.#model));
    else if (die < 81) this.#stray(chance);
    else if (die < 90) this.#pass(chance);
    else if (die < 93) this.#call(null);
    else if (die < 94) this.#say("riders are flushed", () => this.#object.flush(this.#model));
    else if (die < 95) this.#die(chance);
    else if (die < 97 && chance.once(this.#calm ? 60 : 3)) this.#change(chance);
    else if (chance.once(this.#calm ? 10 : 5)) this.#crash(chance);
    else this.#lateTruth(chance);
    if (step % 250 === 0) {
      checkAll(this.#model, this.#object.state);
      noteState(this.#seen, this.#object.state);
    }
    return this.told;
  }

  recordAgrees(): boolean {
    return this.#object.recordAgrees();
  }

  #say(what: string, act: () => void): void {
    this.told = what;
    act();
  }

  #ask(chance: Chance, step: number): void {
    if (this.#object.state.leases.size - this.#object.state.closed.length > 45) return;
    const client = newClient(chance, `r${step}`);
    this.#clients.push(client);
    if (this.#clients.length > 16) this.#clients.shift();
    this.#send(chance, reserveBy(chance, client, this.#policy));
  }

  /** Into the network, which may lose it or say it twice. */
  #send(chance: Chance, command: Command): void {
    this.told = `sent ${said(command)}`;
    if (chance.once(25)) return note(this.#seen, "call lost");
    this.#calls.push(command);
    if (!chance.once(20)) return;
    this.#calls.push(command);
    note(this.#seen, "call twice");
  }

  #deliver(chance: Chance): void {
    if (this.#calls.length === 0) return this.#go(chance);
    const [command] = this.#calls.splice(chance.below(this.#calls.length), 1);
    if (command !== undefined) this.#call(command);
  }

  #go(chance: Chance): void {
    if (this.#clients.length === 0) return;
    const busy = this.#clients.filter(({ phase }) => phase !== "waiting" && phase !== "over");
    const command = nextOf(chance, chance.pick(busy.length > 0 && !chance.once(8) ? busy : this.#clients));
    if (command !== null) this.#send(chance, command);
  }

  #stray(chance: Chance): void {
    if (this.#clients.length > 0) this.#call(stray(chance, chance.pick(this.#clients).id));
  }

  #lateTruth(chance: Chance): void {
    if (this.#clients.length > 0) this.#call(settleBy(chance, chance.pick(this.#clients)));
  }

  /** A holder that dies: its session ends, or nobody notices before the deadline. */
  #die(chance: Chance): void {
    if (this.#clients.length === 0) return;
    const client = chance.pick(this.#clients);
    client.phase = "over";
    note(this.#seen, "holder died");
    if (chance.once(2)) return;
    note(this.#seen, "session ended");
    this.#calls.push({ type: "leave", requestId: client.id, cause: "caller_left" });
    this.#calls.push({ type: "expire", requestId: client.id, cause: "session_lost" });
    this.told = `the session of ${client.id} ends`;
  }

  #change(chance: Chance): void {
    this.#epoch += 1;
    const stale = chance.once(5);
    const policy = somePolicy(chance, stale ? Math.max(0, this.#epoch - 3) : this.#epoch, this.#calm);
    if (!stale) this.#policy = policy;
    this.#call({ type: "set_policy", policy });
  }

  #pass(chance: Chance): void {
    const before = this.#nowMs;
    if (chance.once(this.#calm ? 400 : 100)) this.#nowMs += chance.pick([40_000, 3_600_000, 86_400_000]);
    else if (chance.once(40)) this.#nowMs -= chance.between(1, 60_000);
    else this.#nowMs += chance.pick([0, 1, 5, 30, 100, 400]);
    if (this.#nowMs < before) note(this.#seen, "clock back");
    if (this.#nowMs > before + 30_000) note(this.#seen, "clock ahead");
    this.told = `clock ${this.#nowMs - before >= 0 ? "+" : ""}${this.#nowMs - before}`;
  }

  #call(command: Command | null): void {
    this.told = `call ${command === null ? "sweep" : said(command)}`;
    const { state } = this.#object;
    const before = new Map<string, string>();
    for (const { requestId } of state.queue.byId.values()) before.set(requestId, "PROPOSED");
    for (const lease of [
      ...(state.open.values() as Iterable<Iterable<{ requestId: string; state: string }>>),
    ].flatMap((each) => [...each]))
      before.set(lease.requestId, lease.state);
    for (const line of state.reconciling.values())
      for (const lease of line) before.set(lease.requestId, lease.state);
    const own =
      command === null || !("requestId" in command) ? undefined : state.leases.get(command.requestId);
    if (own !== undefined) before.set(own.requestId, own.state);
    const { events, reply } = this.#object.call(command, this.#nowMs);
    this.told += ` -> ${events.map(brief).join(", ")}`;
    checkTurn(this.#model, command, events, this.#nowMs, () => this.#learn());
    const ticket = this.#object.commit(events, this.#model);
    // I8: whoever reads what was promised waits for its write; riders are the declared exception.
    if (events.some((event) => isRecorded(event) && !isRider(event))) this.#promised = ticket;
    else if (events.some((event) => isRecorded(event))) this.#ridersSince += 1;
    if (ticket < this.#promised)
      throw new Broken(`I8 a read that waits for write ${ticket} shows write ${this.#promised}`);
    for (const event of events) {
      const id = "requestId" in event ? event.requestId : null;
      noteEvent(this.#seen, event, (id === null ? undefined : before.get(id)) ?? "none", state);
      if (id !== null) checkLease(this.#model, state, id);
    }
    checkLimits(this.#model, state);
    if (reply !== null) this.#answers.push({ event: reply, ticket });
    for (const event of events)
      if (event.type === "reserved" && event !== reply) this.#answers.push({ event, ticket });
  }

  #learn(): void {
    for (const { key, autoMax } of this.#object.state.limits.values()) {
      const bound = this.#model.bounds.get(key);
      if (bound !== undefined && bound.autoMax !== autoMax)
        this.#model.bounds.set(key, { ...bound, autoMax });
    }
  }

  /** An answer whose write is durable leaves, and may get lost on its way. */
  #answer(chance: Chance): void {
    const free = this.#answers.filter(({ ticket }) => ticket <= this.#object.durableWrites);
    if (free.length === 0) return this.#say("write arrives", () => this.#object.arrive(this.#model));
    const answer = chance.pick(free);
    const { event, ticket } = answer;
    this.#answers = this.#answers.filter((other) => other !== answer);
    this.told = `answer ${brief(event)}`;
    if (isRecorded(event) && !isRider(event) && !this.#object.holds(event, ticket))
      throw new Broken(`I8 an answer left before its record: ${brief(event)}`);
    if (chance.once(15)) return note(this.#seen, "answer lost");
    const client = this.#clients.find(({ id }) => "requestId" in event && event.requestId === id);
    if (client === undefined) return;
    if (event.type === "refused" && event.code === "need_policy") {
      this.#calls.push({ type: "set_policy", policy: this.#policy });
      this.#calls.push(reserveBy(chance, client, this.#policy));
    }
    if (event.type === "reserved") {
      client.fence = event.fence;
      if (client.phase === "waiting") client.phase = event.state === "RESERVED" ? "granted" : "sent";
    } else if (event.type === "taken_over") client.fence = event.fence;
  }

  #crash(chance: Chance): void {
    const { state, writing } = this.#object;
    const arrives = chance.once(2);
    note(this.#seen, writing ? `crash writing, ${arrives ? "arrived" : "lost"}` : "crash idle");
    if (state.queue.byId.size > 0) note(this.#seen, "crash with waiters");
    if (this.#ridersSince > 0) note(this.#seen, "riders lost");
    this.told = `crash, ${writing ? `and its write ${arrives ? "arrives" : "is lost"}` : "at rest"}`;
    this.#model = this.#object.crash(arrives) ?? new Model();
    this.#promised = 0;
    this.#ridersSince = 0;
    // An answer that was free to go may be on its way; the others never were.
    this.#answers = this.#answers.filter(({ ticket }) => ticket <= this.#object.durableWrites);
    checkAll(this.#model, this.#object.state);
  }
}

function brief(event: LedgerEvent): string {
  const id = "requestId" in event ? ` ${event.requestId}` : "";
  if (event.type === "refused")
    return `refused ${event.code}${id}${event.limit === null ? "" : ` by ${event.limit}`}`;
  if (event.type === "reserved") return `reserved${id} ${event.state} ${JSON.stringify(event.hold)}`;
  return `${event.type}${id}`;
}

/** A command in as few words as tell it apart. */
function said(command: Command): string {
  if (command.type === "set_policy") {
    const { hash, leaseTtlMs, limits } = command.policy;
    const bounds = limits.map(
      (limit) => `${limit.name}=${limit.kind === "gauge" ? limit.max : limit.capacity}`,
    );
    return `set_policy ${hash} ttl ${leaseTtlMs} ${bounds.join(" ")}`;
  }
  const { type, ...rest } = command;
  if (command.type !== "reserve") return `${type} ${JSON.stringify(rest).replaceAll('"', "")}`;
  const { requestId, inputTokens, maxOutputTokens, queueMs, dispatch, idempotency, scope, outputDeclared } =
    command;
  const key =
    idempotency === null ? "" : ` key ${idempotency.key}/${idempotency.digest}/${idempotency.repeat}`;
  const output = `${outputDeclared ? "" : "<="}${maxOutputTokens}`;
  return `reserve ${requestId} ${inputTokens}+${output} ${command.class} ${scope.model} ${scope.key} ${scope.user} queue ${queueMs} ${dispatch ? "proxied" : "own"}${key} price ${command.price !== null} ceiling ${command.perRequestMaxTokens}`;
}
