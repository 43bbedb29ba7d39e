/** What clients, operators and strangers send: mostly sense, and sometimes not. */
import type { Command, Idempotency } from "../../../src/ledger/commands.ts";
import type { LedgerPolicy } from "../../../src/policy/resolve.ts";
import { reserveOf, usage } from "../../support/ledger.ts";
import type { Chance } from "./random.ts";

export interface Client {
  readonly id: string;
  readonly inputTokens: number;
  readonly maxOutputTokens: number;
  fence: number;
  produced: number;
  captures: number;
  /** Its next word, if all goes well. */
  phase: "waiting" | "granted" | "sent" | "running" | "over";
}

const PRICE = { inputPicoUsd: 150_000, cachedInputPicoUsd: 75_333, outputPicoUsd: 600_001 };

export function newClient(chance: Chance, id: string): Client {
  const huge = chance.once(12);
  return {
    id,
    inputTokens: huge ? chance.between(1_000, 9_000) : chance.between(0, 250),
    maxOutputTokens: chance.between(0, 300),
    fence: 1,
    produced: 0,
    captures: 0,
    phase: "waiting",
  };
}

export function reserveBy(chance: Chance, client: Client, policy: LedgerPolicy): Command {
  const requestClass = chance.once(3) ? "batch" : "interactive";
  const idempotency: Idempotency | null = chance.once(4)
    ? {
        key: `k${chance.below(6)}`,
        digest: chance.pick(["same", "same", "same", "other"]),
        repeat: chance.pick(["same_lease", "new_attempt"]),
      }
    : null;
  return reserveOf(client.id, client.inputTokens, client.maxOutputTokens, {
    policyHash: policy.hash,
    policyEpoch: policy.epoch,
    scope: {
      class: requestClass,
      route: "default",
      model: chance.pick(["small", "large|model=x"]),
      pool: "",
      key: `key ${chance.below(3)}`,
      user: chance.pick(["", "ann", "bob"]),
    },
    class: requestClass,
    outputDeclared: !chance.once(4),
    price: chance.once(5) ? null : PRICE,
    perRequestMaxTokens: chance.once(6) ? 600 : null,
    dispatch: !chance.once(3),
    queueMs: chance.once(2) ? chance.between(1, 9_000) : null,
    idempotency,
  });
}

/** What a client that holds a lease says next. */
export function nextOf(chance: Chance, client: Client): Command | null {
  const { id: requestId, fence } = client;
  switch (client.phase) {
    case "granted":
      client.phase = "sent";
      return { type: "dispatch", requestId, fence };
    case "sent":
      client.phase = chance.once(5) ? "over" : "running";
      if (client.phase === "over")
        return {
          type: "release",
          requestId,
          fence,
          evidence: chance.pick(["not_sent", "provider_refused", null]),
        };
      return { type: "running", requestId, fence, providerRequestId: chance.pick([`p ${requestId}`, null]) };
    case "running": {
      if (client.captures === 0 && chance.once(6)) {
        client.phase = "over";
        return { type: "release", requestId, fence, evidence: "provider_refused" };
      }
      client.produced += chance.below(120);
      if (chance.once(6)) return { type: "top_up", requestId, fence, tokens: chance.between(1, 200) };
      if (!chance.once(3)) return captureBy(client);
      client.phase = "over";
      return settleBy(chance, client);
    }
    case "over":
      return chance.once(2) ? settleBy(chance, client) : null;
    case "waiting":
      return null;
  }
}

function captureBy(client: Client): Command {
  client.captures += 1;
  const { id: requestId, fence, inputTokens, produced, captures } = client;
  const size = produced === 0 ? { inputTokens: 0, outputTokens: 0 } : { inputTokens, outputTokens: produced };
  return { type: "capture", requestId, fence, usageEventId: `c${captures}`, size };
}

export function settleBy(chance: Chance, { id: requestId, fence, inputTokens, produced }: Client): Command {
  const exact = chance.once(2);
  const told = { ...usage(inputTokens, Math.max(0, produced + (exact ? chance.between(-60, 40) : 0))) };
  const cachedInputTokens = chance.pick([0, 0, Math.floor(inputTokens / 2), inputTokens + 5]);
  return {
    type: "settle",
    requestId,
    fence,
    usage: { ...told, cachedInputTokens },
    basis: exact ? "exact" : "under_estimate",
  };
}

/** Any word, of anyone, about any id. */
export function stray(chance: Chance, id: string): Command {
  const requestId = chance.once(8) ? `nobody${chance.below(4)}` : id;
  const fence = chance.pick([1, 1, 1, 2, 3, 7]);
  const amount = () => usage(chance.below(300), chance.below(400));
  switch (chance.below(11)) {
    case 0:
      return { type: "dispatch", requestId, fence };
    case 1:
      return { type: "running", requestId, fence, providerRequestId: chance.pick([null, "stray"]) };
    case 2:
      return { type: "capture", requestId, fence, usageEventId: `c${chance.below(5)}`, size: amount() };
    case 3:
      return { type: "top_up", requestId, fence, tokens: chance.below(5_000) };
    case 4:
      return {
        type: "settle",
        requestId,
        fence,
        usage: amount(),
        basis: chance.pick(["exact", "under_estimate"]),
      };
    case 5:
      return {
        type: "release",
        requestId,
        fence: chance.pick([null, fence]),
        evidence: chance.pick(["not_sent", "provider_refused", null]),
      };
    case 6:
      return {
        type: "expire",
        requestId,
        cause: chance.pick(["session_lost", "outcome_unknown", "deadline"]),
      };
    case 7:
    case 8:
      return { type: "take_over", requestId };
    case 9:
      return { type: "resolve", requestId, usage: chance.pick([null, amount()]) };
    default:
      return { type: "leave", requestId, cause: chance.pick(["caller_left", "deadline"]) };
  }
}
