/**
 * The world: ledgers that crash, clients that die, a network that is none too good, clocks that jump, alarms that are
 * late and policies that change, all from one seed. It chooses what is done; the stages do it and check it.
 */
import type { Command } from "../../../src/ledger/commands.ts";
import type { LedgerEvent } from "../../../src/ledger/types.ts";
import type { LedgerPolicy } from "../../../src/policy/resolve.ts";
import { Broken } from "./check.ts";
import { Client, someReserve, someWord } from "./clients.ts";
import type { Coverage } from "./coverage.ts";
import { Network } from "./network.ts";
import { CORE, type Core } from "./object.ts";
import { somePolicy, tuned, wide } from "./policies.ts";
import { Chance } from "./random.ts";
import { type Deed, Stage } from "./stage.ts";

type Letter =
  | {
      readonly to: "ledger";
      readonly from: number | null;
      readonly ledger: number;
      readonly command: Command;
    }
  | { readonly to: "client"; readonly client: number; readonly event: LedgerEvent };

/** One ledger, its own clock, and all that was done to it. */
interface Site {
  readonly stage: Stage;
  readonly deeds: Deed[];
  skewMs: number;
}

/** What was done to the ledger that broke, up to there. */
export interface Failure {
  readonly seed: number;
  readonly rule: string;
  readonly message: string;
  readonly deeds: readonly Deed[];
}

/** 2026-11-29, some hours before the end of a day, a week and a month. */
const BEGIN_MS = Date.UTC(2026, 10, 29, 20);

class World {
  readonly #chance: Chance;
  readonly #coverage: Coverage;
  readonly #network: Network<Letter>;
  readonly #sites: Site[];
  readonly #clients: Client[];
  readonly #policies: LedgerPolicy[] = [];
  readonly #isCrowd: boolean;
  #timeMs = BEGIN_MS;
  /** Steps are deeds to a ledger; what goes on between them is free. */
  #done = 0;
  #acting: Stage | null = null;
  #ids = 0;

  constructor(seed: number, core: Core, coverage: Coverage) {
    const chance = new Chance(seed);
    this.#chance = chance;
    this.#coverage = coverage;
    this.#network = new Network(chance, coverage);
    // A crowd now and then, more than one sweep takes.
    this.#isCrowd = chance.once(12);
    this.#policies.push(this.#isCrowd ? wide() : somePolicy(chance, 1));
    const sites = chance.pick([1, 1, 2]);
    this.#sites = Array.from({ length: sites }, () => ({
      stage: new Stage(core, coverage),
      deeds: [],
      skewMs: 0,
    }));
    const newId = () => `r${(this.#ids += 1)}`;
    const clients = this.#isCrowd ? 150 : chance.between(6, 14);
    this.#clients = Array.from(
      { length: clients },
      (_, index) => new Client(index % sites, chance, this.#newest(), newId),
    );
  }

  run(seed: number, steps: number): Failure | null {
    try {
      while (this.#done < steps) this.#step();
      return null;
    } catch (error) {
      const site = this.#sites.find(({ stage }) => stage === this.#acting);
      if (!(error instanceof Broken) || site === undefined) throw error;
      return { seed, rule: error.rule, message: error.message, deeds: site.deeds };
    }
  }

  #do(site: Site, deed: Deed): void {
    this.#done += 1;
    site.deeds.push(deed);
    this.#acting = site.stage;
    const { parcels } = site.stage.do(deed);
    for (const { call, event } of parcels) {
      const client = call ?? this.#whoWaits(event);
      if (client !== null) this.#network.send({ to: "client", client, event }, this.#timeMs);
    }
  }

  /** Word of a grant goes to whoever asked. */
  #whoWaits(event: LedgerEvent): number | null {
    const id = "requestId" in event ? event.requestId : null;
    const index = this.#clients.findIndex((client) => client.asks(id));
    return index < 0 ? null : index;
  }

  #step(): void {
    const chance = this.#chance;
    this.#pass();
    const site = chance.pick(this.#sites);
    const { stage } = site;
    if (stage.object.isWriting && chance.once(2)) return this.#do(site, { type: "arrive" });
    if (this.#network.isDue(this.#timeMs) && !chance.once(4)) return this.#deliver();
    const rare = { crash: 4, policy: 2, clock: 2, word: 40, preview: 10, alarm: 12, flush: 8 };
    switch (chance.weighed({ deliver: 100, act: 500, ...rare })) {
      case "deliver":
        return this.#deliver();
      case "act":
        return this.#act();
      case "crash":
        return this.#do(site, { type: "crash", arrives: chance.once(2) });
      case "policy":
        return this.#isCrowd ? undefined : this.#changePolicy(site);
      case "clock": {
        const isForwards = chance.once(2);
        this.#coverage.count(`clock ${isForwards ? "forwards" : "backwards"}`);
        site.skewMs += (isForwards ? 1 : -1) * chance.pick([1, 700, 20_000, 120_000]);
        return;
      }
      case "word":
        return this.#call(site, null, someWord(chance, this.#someLease(site)));
      case "preview": {
        const command = someReserve(chance, `r${this.#ids + 1}`, this.#newest());
        return this.#do(site, { type: "preview", command, nowMs: this.#nowAt(site) });
      }
      case "alarm":
        return this.#alarm(site);
      case "flush":
        return this.#do(site, { type: "flush" });
    }
  }

  /** Time goes by in small steps, with a leap now and then. */
  #pass(): void {
    const chance = this.#chance;
    this.#timeMs += chance.between(0, 20);
    if (chance.once(60)) this.#timeMs += chance.between(200, 3_000);
    if (chance.once(400)) this.#timeMs += chance.between(5_000, 30_000);
    if (chance.once(1_200)) this.#timeMs += chance.pick([60_000, 1_000_000, 3_600_000, 30_000_000]);
  }

  #deliver(): void {
    const letter = this.#network.take(this.#timeMs);
    if (letter === null) return;
    if (letter.to === "client") return this.#hear(letter.client, letter.event);
    const site = this.#sites[letter.ledger];
    if (site !== undefined) this.#call(site, letter.from, letter.command);
  }

  #hear(index: number, event: LedgerEvent): void {
    const client = this.#clients[index];
    if (client === undefined) return;
    if (event.type === "refused" && event.code === "need_policy") {
      client.policy = this.#newest();
      const { ledger, policy } = client;
      this.#send(null, ledger, { type: "set_policy", policy });
    }
    client.hear(event);
  }

  #act(): void {
    // Some have nothing to do but wait.
    for (let tries = 0; tries < 4; tries += 1) {
      const index = this.#chance.below(this.#clients.length);
      const client = this.#clients[index];
      const commands = client?.act() ?? [];
      for (const command of commands) this.#send(index, client?.ledger ?? 0, command);
      if (commands.length > 0) return;
    }
  }

  #send(from: number | null, ledger: number, command: Command): void {
    this.#network.send({ to: "ledger", from, ledger, command }, this.#timeMs);
  }

  #call(site: Site, from: number | null, command: Command): void {
    const call = { type: "call", command, nowMs: this.#nowAt(site), call: from } as const;
    this.#do(site, this.#chance.once(400) ? { ...call, dies: true } : call);
  }

  #nowAt({ skewMs }: Site): number {
    return this.#timeMs + skewMs;
  }

  /** Told of or not, sooner or later; and sometimes an older one, or another of the same age. */
  #changePolicy(site: Site): void {
    const chance = this.#chance;
    const { epoch } = this.#newest();
    const old = chance.pick(this.#policies);
    switch (chance.weighed({ tune: 6, change: 2, back: 2, rival: 1 })) {
      case "tune":
        this.#policies.push(tuned(chance, this.#newest(), epoch + 1));
        break;
      case "change":
        this.#policies.push(somePolicy(chance, epoch + 1));
        break;
      case "back":
        return this.#call(site, null, { type: "set_policy", policy: old });
      case "rival":
        this.#policies.push(somePolicy(chance, epoch, `p${epoch}-rival-${this.#policies.length}`));
        break;
    }
    if (chance.once(2)) this.#call(site, null, { type: "set_policy", policy: this.#newest() });
    for (const client of this.#clients) if (chance.once(2)) client.policy = this.#newest();
  }

  #newest(): LedgerPolicy {
    const newest = this.#policies.at(-1);
    if (newest === undefined) throw new Error("a world without a policy");
    return newest;
  }

  #alarm(site: Site): void {
    const { model } = site.stage;
    // To the millisecond, when it can be.
    const instants = [
      ...[...model.leases.values()].map(({ expiresAtMs }) => expiresAtMs),
      ...model.waiters.map(({ deadlineAtMs }) => deadlineAtMs),
    ].filter((atMs) => atMs > this.#nowAt(site) && atMs < this.#nowAt(site) + 20_000);
    if (instants.length > 0 && this.#chance.once(3))
      this.#timeMs = this.#chance.pick(instants) - site.skewMs + this.#chance.pick([-1, 0, 0]);
    const nowMs = this.#nowAt(site);
    const isDue = [...model.leases.values()].some(({ expiresAtMs }) => expiresAtMs < nowMs);
    this.#coverage.count(isDue ? "alarm late" : "alarm for nothing");
    this.#do(site, { type: "alarm", nowMs });
  }

  /** Rather one that is frozen than another; now and then nobody's. */
  #someLease({ stage: { model } }: Site) {
    const chance = this.#chance;
    if (chance.once(15))
      return { id: `r${this.#ids + chance.pick([1, 7])}`, fence: 1, state: "RESERVED" } as const;
    const all = [...model.leases.values()].slice(-60);
    const frozen = all.filter(({ state }) => state === "RECONCILING");
    const from = frozen.length > 0 && chance.once(2) ? frozen : all;
    const waiter = model.waiters[0]?.command.requestId;
    if (from.length === 0 || (waiter !== undefined && chance.once(5)))
      return { id: waiter ?? "nobody", fence: 1, state: "RESERVED" } as const;
    return chance.pick(from);
  }
}

export function runWorld(seed: number, steps: number, coverage: Coverage, core: Core = CORE): Failure | null {
  return new World(seed, core, coverage).run(seed, steps);
}

/** The same deeds to a ledger of its own: what breaks then, and at which of them. */
export function replay(deeds: readonly Deed[], coverage: Coverage, core: Core = CORE) {
  const stage = new Stage(core, coverage, 1);
  for (const [at, deed] of deeds.entries()) {
    try {
      stage.do(deed);
    } catch (error) {
      if (!(error instanceof Broken)) throw error;
      return { at, rule: error.rule, message: error.message };
    }
  }
  return null;
}
