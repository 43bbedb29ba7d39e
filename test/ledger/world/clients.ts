/**
 * Those who ask. A client carries one request at a time through the protocol, mostly as it should; it may lose an
 * answer, ask twice, and die at any point: by a session that is seen to end, or without a word.
 */
import type { Command, Reserve, Usage } from "../../../src/ledger/commands.ts";
import type { LedgerEvent } from "../../../src/ledger/types.ts";
import type { LedgerPolicy, Price } from "../../../src/policy/resolve.ts";
import type { ModelLease } from "./model.ts";
import type { Chance } from "./random.ts";

type Phase = "idle" | "asking" | "waiting" | "holding" | "sent" | "over";

const PRICES: readonly Price[] = [
  { inputPicoUsd: 150_000, cachedInputPicoUsd: 75_000, outputPicoUsd: 600_000 },
  { inputPicoUsd: 333_333, cachedInputPicoUsd: 33_333, outputPicoUsd: 1_000_001 },
];

export class Client {
  readonly ledger: number;
  readonly #chance: Chance;
  readonly #newId: () => string;
  policy: LedgerPolicy;
  #phase: Phase = "idle";
  #asked: Reserve | null = null;
  #fence = 1;
  #patience = 0;
  #seen = { inputTokens: 0, outputTokens: 0 };
  #usageEvents = 0;
  #last: Usage | null = null;

  constructor(ledger: number, chance: Chance, policy: LedgerPolicy, newId: () => string) {
    this.ledger = ledger;
    this.#chance = chance;
    this.policy = policy;
    this.#newId = newId;
  }

  /** What it does next; nothing while it waits. */
  act(): readonly Command[] {
    switch (this.#phase) {
      case "idle":
        return this.#ask();
      case "asking":
        this.#patience -= 1;
        return this.#patience > 0 ? [] : this.#giveUpAsking();
      case "waiting":
        return this.#wait();
      case "holding":
        return this.#hold();
      case "sent":
        return this.#stream();
      case "over":
        return this.#afterwards();
    }
  }

  /** Whether this is its request. */
  asks(requestId: string | null): boolean {
    return requestId !== null && this.#asked?.requestId === requestId;
  }

  hear(event: LedgerEvent): void {
    if (event.type === "refused" && event.code === "need_policy") {
      this.#phase = "idle";
      return;
    }
    if (this.#asked === null || !("requestId" in event) || event.requestId !== this.#asked.requestId) return;
    switch (event.type) {
      case "reserved":
        this.#phase = event.state === "RESERVED" ? "holding" : "sent";
        this.#fence = event.fence;
        return;
      case "queued":
        if (this.#phase === "asking") this.#phase = "waiting";
        return;
      case "dispatched":
      case "ran":
        this.#phase = "sent";
        return;
      case "settled":
      case "released":
      case "expired":
        this.#phase = "over";
        return;
      case "refused":
        if (this.#phase === "asking" || this.#phase === "waiting") this.#phase = "idle";
        else if (this.#chance.once(2)) this.#phase = "over";
        return;
      case "unchanged":
        if (event.fence !== null) this.#fence = event.fence;
        if (this.#phase === "asking" && event.state === "RESERVED") this.#phase = "holding";
        else if (this.#phase === "asking" && event.state !== "PROPOSED") this.#phase = "sent";
        return;
      default:
        return;
    }
  }

  #ask(): Command[] {
    const chance = this.#chance;
    this.#asked = someReserve(chance, this.#newId(), this.policy);
    this.#phase = "asking";
    this.#patience = chance.between(5, 20);
    this.#fence = 1;
    this.#seen = { inputTokens: 0, outputTokens: 0 };
    this.#last = null;
    return [this.#asked];
  }

  #giveUpAsking(): Command[] {
    const asked = this.#asked;
    if (asked === null) return this.#die();
    this.#patience = 3;
    switch (this.#chance.weighed({ again: 4, release: 4, die: 1 })) {
      case "again":
        return [asked];
      case "release":
        this.#phase = "idle";
        return [{ type: "release", requestId: asked.requestId, fence: null, evidence: "not_sent" }];
      case "die":
        return this.#die();
    }
  }

  #wait(): Command[] {
    const requestId = this.#id();
    switch (this.#chance.weighed({ wait: 20, again: 1, leave: 2, release: 1, die: 2 })) {
      case "wait":
        return [];
      case "again":
        return this.#asked === null ? [] : [this.#asked];
      case "leave":
        this.#phase = "idle";
        return [{ type: "leave", requestId, cause: "caller_left" }];
      case "release":
        this.#phase = "idle";
        return [{ type: "release", requestId, fence: null, evidence: "not_sent" }];
      case "die":
        return this.#die();
    }
  }

  #hold(): Command[] {
    const lease = this.#lease();
    switch (
      this.#chance.weighed({ dispatch: 12, running: 2, release: 3, settle: 1, capture: 1, die: 3, wait: 2 })
    ) {
      case "dispatch":
        this.#phase = "sent";
        return [{ type: "dispatch", ...lease }];
      case "running":
        this.#phase = "sent";
        return [this.#running()];
      case "release":
        this.#phase = "over";
        return [
          { type: "release", ...lease, evidence: this.#chance.pick([null, "not_sent", "provider_refused"]) },
        ];
      case "settle":
        return [this.#settle("exact")];
      case "capture":
        return [this.#capture()];
      case "die":
        return this.#die();
      case "wait":
        return [];
    }
  }

  #stream(): Command[] {
    const lease = this.#lease();
    const weights = {
      running: 6,
      capture: 9,
      older: 1,
      topUp: 4,
      exact: 5,
      guess: 2,
      refused: 1,
      unsent: 1,
      lost: 1,
    };
    switch (this.#chance.weighed({ ...weights, die: 2, dispatch: 1, wait: 3 })) {
      case "running":
        return [this.#running()];
      case "capture":
        return [this.#capture()];
      case "older": {
        const size = { inputTokens: 0, outputTokens: Math.floor(this.#seen.outputTokens / 2) };
        return [{ type: "capture", ...lease, usageEventId: `u${this.#usageEvents}`, size }];
      }
      case "topUp":
        return [{ type: "top_up", ...lease, tokens: this.#chance.pick([0, 10, 50, 200, 1_000, 9_000]) }];
      case "exact":
        return this.#chance.once(8)
          ? [this.#settle("exact"), this.#settle("exact")]
          : [this.#settle("exact")];
      case "guess":
        return [this.#settle("under_estimate")];
      case "refused":
        return [{ type: "release", ...lease, evidence: "provider_refused" }];
      case "unsent":
        return [{ type: "release", ...lease, evidence: this.#chance.pick([null, "not_sent"]) }];
      case "lost":
        this.#phase = "over";
        return [{ type: "expire", requestId: lease.requestId, cause: "outcome_unknown" }];
      case "die":
        return this.#die();
      case "dispatch":
        return [{ type: "dispatch", ...lease }];
      case "wait":
        return [];
    }
  }

  /** The same again, another figure, the truth after a guess; or on to the next. */
  #afterwards(): Command[] {
    const last = this.#last;
    switch (
      this.#chance.weighed({ next: 6, again: 2, other: 1, truth: 3, late: 1, release: 1, takeOver: 1 })
    ) {
      case "next":
        this.#phase = "idle";
        return [];
      case "again":
        return last === null ? [] : [{ type: "settle", ...this.#lease(), usage: last, basis: "exact" }];
      case "other":
        return [this.#settle(this.#chance.pick(["exact", "under_estimate"]))];
      case "truth":
        return [this.#settle("exact")];
      case "late":
        return [this.#capture()];
      case "release":
        return [{ type: "release", ...this.#lease(), evidence: this.#chance.pick([null, "not_sent"]) }];
      case "takeOver":
        return [{ type: "take_over", requestId: this.#id() }];
    }
  }

  /** Seen by its session's end, or not at all; the next one is another. */
  #die(): Command[] {
    const requestId = this.#id();
    this.#phase = "idle";
    this.#asked = null;
    if (this.#chance.once(2)) return [];
    return [
      { type: "leave", requestId, cause: "caller_left" },
      { type: "expire", requestId, cause: "session_lost" },
    ];
  }

  #running(): Command {
    return {
      type: "running",
      ...this.#lease(),
      providerRequestId: this.#chance.pick([null, `x${this.#id()}`]),
    };
  }

  #capture(): Command {
    const chance = this.#chance;
    if (!chance.once(5)) this.#usageEvents += 1;
    this.#seen = {
      inputTokens: Math.max(this.#seen.inputTokens, chance.once(3) ? 0 : (this.#asked?.inputTokens ?? 0)),
      outputTokens: this.#seen.outputTokens + (chance.once(4) ? 0 : chance.between(1, 250)),
    };
    return { type: "capture", ...this.#lease(), usageEventId: `u${this.#usageEvents}`, size: this.#seen };
  }

  #settle(basis: "exact" | "under_estimate"): Command {
    if (this.#phase === "sent" && !this.#chance.once(4)) this.#phase = "over";
    this.#last = someUsage(this.#chance, this.#asked?.inputTokens ?? 50, this.#seen.outputTokens + 100);
    return { type: "settle", ...this.#lease(), usage: this.#last, basis };
  }

  #id(): string {
    return this.#asked?.requestId ?? "nobody";
  }

  #lease(): { readonly requestId: string; readonly fence: number } {
    return { requestId: this.#id(), fence: this.#fence };
  }
}

export function someReserve(chance: Chance, requestId: string, policy: LedgerPolicy): Reserve {
  const requestClass = chance.pick(["interactive", "interactive", "batch"] as const);
  const model = chance.below(3);
  const number = Number(requestId.replace(/^\D+/, ""));
  const outputDeclared = !chance.once(3);
  return {
    type: "reserve",
    requestId,
    policyHash: policy.hash,
    policyEpoch: policy.epoch,
    scope: {
      class: requestClass,
      route: chance.pick(["default", "default", "other"]),
      model: `m${model}`,
      pool: "",
      key: chance.pick(["k 1", "k|2", "k=3"]),
      user: chance.pick(["", "ann", "bob"]),
    },
    class: requestClass,
    inputTokens: chance.once(30) ? chance.pick([0, 5_000]) : chance.between(1, 150),
    counted: chance.pick([
      null,
      { basis: "counted", vocabulary: "v", components: { messages: 1 }, presumedDrift: 1 },
      { basis: chance.pick(["bounded", "estimated"]), vocabulary: "v", components: {}, presumedDrift: 1.5 },
      { basis: chance.pick(["asked", "unanswered"]), vocabulary: "", components: {}, presumedDrift: 2 },
    ]),
    maxOutputTokens: outputDeclared
      ? chance.between(0, chance.once(40) ? 9_000 : 200)
      : chance.between(0, 3_000),
    outputDeclared,
    price: PRICES[model - 1] ?? null,
    perRequestMaxTokens: chance.pick([null, null, null, 900, 600]),
    dispatch: chance.once(2),
    queueMs: chance.pick([null, null, 0, 800, 5_000, 20_000, 60_000]),
    idempotency: chance.once(3)
      ? {
          key: `${Math.floor(number / 12)}-${chance.below(4)}`,
          digest: chance.once(5) ? "other" : "same",
          repeat: chance.pick(["same_lease", "new_attempt"]),
        }
      : null,
  };
}

export function someUsage(chance: Chance, inputTokens: number, about: number): Usage {
  const counted = chance.once(3) ? Math.floor(inputTokens * 1.3) : inputTokens;
  return {
    inputTokens: counted,
    outputTokens: chance.between(0, chance.once(5) ? about * 8 : about),
    cachedInputTokens: chance.pick([0, 0, Math.floor(counted / 2), counted, counted + 5]),
    cacheWriteTokens: 0,
    reasoningTokens: 0,
  };
}

/** What an operator, an heir, a late message or a fool may say of a lease: anything at all. */
export function someWord(
  chance: Chance,
  { id, fence, state }: Pick<ModelLease, "id" | "fence" | "state">,
): Command {
  const requestId = id;
  const lease = { requestId, fence: chance.once(4) ? fence + chance.pick([-1, 1]) : fence };
  const usage = someUsage(chance, 80, 200);
  if (state === "RECONCILING") {
    switch (
      chance.weighed({ takeOver: 4, resolve: 3, age: 1, settle: 3, guess: 1, release: 2, capture: 2, any: 2 })
    ) {
      case "takeOver":
        return { type: "take_over", requestId };
      case "resolve":
        return { type: "resolve", requestId, usage };
      case "age":
        return { type: "resolve", requestId, usage: null };
      case "settle":
        return { type: "settle", ...lease, usage, basis: "exact" };
      case "guess":
        return { type: "settle", ...lease, usage, basis: "under_estimate" };
      case "release":
        return { type: "release", ...lease, evidence: chance.pick([null, "not_sent", "provider_refused"]) };
      case "capture":
        return { type: "capture", ...lease, usageEventId: `w${chance.below(5)}`, size: usage };
      case "any":
    }
  }
  return chance.pick<Command>([
    { type: "dispatch", ...lease },
    { type: "running", ...lease, providerRequestId: chance.pick([null, "x"]) },
    {
      type: "capture",
      ...lease,
      usageEventId: `w${chance.below(5)}`,
      size: { inputTokens: 0, outputTokens: 0 },
    },
    {
      type: "capture",
      ...lease,
      usageEventId: `w${chance.below(5)}`,
      size: { inputTokens: 60, outputTokens: 90 },
    },
    { type: "top_up", ...lease, tokens: chance.between(0, 400) },
    { type: "settle", ...lease, usage, basis: "exact" },
    { type: "settle", ...lease, usage, basis: "under_estimate" },
    { type: "release", ...lease, evidence: chance.pick([null, "not_sent", "provider_refused"]) },
    { type: "expire", requestId, cause: chance.pick(["deadline", "session_lost", "outcome_unknown"]) },
    { type: "take_over", requestId },
    { type: "resolve", requestId, usage: chance.once(2) ? null : usage },
    { type: "leave", requestId, cause: chance.pick(["caller_left", "deadline"]) },
    { type: "admit", requestId },
    { type: "turn_window", limit: "hour" },
  ]);
}
