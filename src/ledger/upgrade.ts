/**
 * Records of earlier versions, brought to the present shape. Each step knows the shape before it and nothing
 * later; a step that was once released is never edited.
 */
import type { Limit, Scope } from "../policy/limit-schema.ts";
import type { LedgerPolicy } from "../policy/resolve.ts";
import { evolve } from "./evolve.ts";
import { type Snapshot, snapshot } from "./snapshot.ts";
import { emptyState, type Lease, type LeaseCharge, queueOf, type Settlement } from "./state.ts";
import type { Move, RecordedEvent, Reserved } from "./types.ts";

type OldPolicy = Pick<LedgerPolicy, "hash" | "epoch" | "leaseTtlMs" | "reconcileAgeMaxMs"> & {
  readonly limits: readonly Record<string, unknown>[];
};

interface OldReserved extends Omit<Reserved, "scope"> {
  readonly route: string;
  readonly model: string;
  readonly keyId: string;
}

type OldEvent = RecordedEvent | OldReserved | { readonly type: "policy_set"; readonly policy: OldPolicy };

interface OldLease {
  readonly requestId: string;
  readonly fence: number;
  readonly route: string;
  readonly model: string;
  readonly reservedAtMs: number;
  readonly ttlMs: number;
  readonly hold: Lease["hold"];
  readonly state: Lease["state"];
  readonly captured: Lease["captured"];
  readonly charges: readonly LeaseCharge[];
  readonly expiresAtMs: number;
  readonly lastUsageEventId: string | null;
  readonly providerRequestId: string | null;
  readonly settlement: Omit<Settlement, "corrected"> | null;
}

interface OldLimit {
  readonly name: string;
  readonly generation: number;
  readonly kind: Limit["kind"];
  readonly level: number;
  readonly asOfMs: number;
  readonly held: number;
  readonly settledTotal: number;
  readonly forfeitedLevel: number;
}

interface OldSnapshot {
  readonly nowMs: number;
  readonly policy: OldPolicy | null;
  readonly generation: number;
  readonly meanStayMs: number;
  readonly inFlightTokens: number;
  readonly reconcilingTokens: number;
  readonly limits: readonly OldLimit[];
  readonly leases: readonly OldLease[];
}

/** From the first version: limits per tenant, buckets and gauges, one settlement for ever. */
export function eventFromV1(event: OldEvent): RecordedEvent {
  switch (event.type) {
    case "policy_set":
      return { ...event, policy: policyFromV1(event.policy), windows: {} } as RecordedEvent;
    case "reserved": {
      const { route, model, keyId, ...kept } = event as OldReserved;
      const scope = scopeFromV1(route, model, event.class, keyId);
      return {
        ...kept,
        scope,
        price: null,
        proxied: true,
        perRequestMaxTokens: null,
        waitedMs: 0,
        idempotency: null,
        counted: null,
      };
    }
    case "ran":
      return { ...event, dispatches: true };
    case "captured":
      return { ...event, overrunTokens: 0, moves: event.moves.map(moveFromV1) };
    case "settled":
    case "released":
    case "expired":
      return { ...event, moves: event.moves.map(moveFromV1) };
    default:
      return event;
  }
}

export function snapshotFromV1(old: OldSnapshot): Snapshot {
  const state = emptyState();
  if (old.policy !== null) {
    const policy = policyFromV1(old.policy);
    evolve(state, { type: "policy_set", atMs: old.nowMs, policy, windows: {} });
  }
  for (const { name, generation, kind, level, asOfMs, held, settledTotal, forfeitedLevel } of old.limits) {
    const limit = state.limits.get(name);
    if (limit === undefined) continue;
    limit.definition.generation = generation;
    // A gauge's level is no longer kept: it follows from what is held.
    Object.assign(limit, {
      level: kind === "bucket" ? level : 0,
      asOfMs,
      held,
      settledTotal,
      forfeitedLevel,
    });
  }
  for (const { route, model, settlement, charges, ...kept } of old.leases) {
    const lease: Lease = {
      ...kept,
      scope: scopeFromV1(route, model, "interactive", ""),
      class: "interactive",
      proxied: true,
      price: null,
      perRequestMaxTokens: null,
      idempotency: null,
      countedTokens: null,
      acceptMs: kept.ttlMs,
      reconcileMs: old.policy?.reconcileAgeMaxMs ?? 0,
      charges: charges.map((charge) => ({ ...charge })),
      settlement: settlement === null ? null : { ...settlement, corrected: false },
      next: null,
      previous: null,
    };
    state.leases.set(lease.requestId, lease);
    queueOf(state, lease).push(lease);
  }
  const { nowMs, generation, inFlightTokens, reconcilingTokens } = old;
  const means = { stayMs: old.meanStayMs, outputTokens: 0, refundShare: 0 };
  return snapshot(Object.assign(state, { nowMs, generation, inFlightTokens, reconcilingTokens, means }));
}

/** The second version did not say how an input was counted, and learnt nothing of its bills. */
export function eventFromV2(event: RecordedEvent): RecordedEvent {
  return event.type === "reserved" ? { ...event, counted: event.counted ?? null } : event;
}

export function snapshotFromV2(old: Omit<Snapshot, "drifts"> & Partial<Snapshot>): Snapshot {
  const leases = old.leases.map(
    (lease) =>
      [...lease.slice(0, LEASE_MEMBERS_V2), lease[LEASE_MEMBERS_V2] ?? null] as unknown as LeaseRecord,
  );
  return { drifts: [], ...old, leases };
}

const LEASE_MEMBERS_V2 = 22;

type LeaseRecord = Snapshot["leases"][number];

function policyFromV1(old: OldPolicy): LedgerPolicy {
  return {
    hash: old.hash,
    epoch: old.epoch,
    limits: old.limits.map(limitFromV1),
    queue: { lengthMax: 256, tokensMax: null },
    leaseTtlMs: old.leaseTtlMs,
    reconcileAgeMaxMs: old.reconcileAgeMaxMs,
    reconcileCharge: "charge_hold",
  };
}

function limitFromV1(old: Record<string, unknown>): Limit {
  const added =
    old["kind"] === "gauge" ? { allowancePerMinute: null, headroom: 0.8 } : { cachedInputWeight: 1 };
  return { ...old, ...added } as unknown as Limit;
}

const scopeFromV1 = (route: string, model: string, requestClass: string, key: string): Scope => ({
  class: requestClass,
  route,
  model,
  pool: "",
  key,
  user: "",
});

const moveFromV1 = (move: Move): Move => ({ ...move, credited: 0, alert: null });
