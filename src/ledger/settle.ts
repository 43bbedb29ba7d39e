/** What the end of a lease comes to: hold against actual, limit by limit. */

import { limitNameOf } from "../policy/limit-schema.ts";
import { amountOf } from "./amounts.ts";
import type { Settle } from "./commands.ts";
import { type LimitState, moveOf, openLimit } from "./limits.ts";
import { refusal, unchanged } from "./refuse.ts";
import { type Lease, type LeaseCharge, type LedgerState, type Settlement, tokensOf } from "./state.ts";
import type { Corrected, LedgerEvent, Move, Settled, Usage } from "./types.ts";

export function decideSettle(state: LedgerState, lease: Lease, command: Settle, atMs: number): LedgerEvent {
  const { usage, basis } = command;
  if (lease.settlement !== null) return resettle(state, lease, lease.settlement, command, atMs);
  // Past this line the settlement must succeed. Usage of a call that was given back, or that was sent before anybody
  // said so, is charged all the same; and what was captured was seen, whatever is left of it in the last word of a call that was cut.
  const seen = basis === "exact" ? usage : atLeastCaptured(lease, usage);
  return settled(state, lease, seen, basis, atMs);
}

/** A repeat is answered like the first; the first exact figure after a guess corrects it; the rest comes too late. */
function resettle(
  state: LedgerState,
  lease: Lease,
  { usage: first, basis: firstBasis, corrected }: Settlement,
  { usage, basis }: Settle,
  atMs: number,
): LedgerEvent {
  if (basis === "exact" && firstBasis !== "exact" && !corrected) return correction(state, lease, usage, atMs);
  const same =
    first.inputTokens === usage.inputTokens &&
    first.outputTokens === usage.outputTokens &&
    first.cachedInputTokens === usage.cachedInputTokens;
  // Of two guesses the first stands; after a correction a guess is a late repeat of what was answered before it.
  const guess = basis === "under_estimate" && firstBasis !== "exact";
  if (same || guess) return unchanged(state, lease.requestId, atMs);
  return refusal("already_settled", lease.requestId, atMs, { state: lease.state });
}

export const atLeastCaptured = ({ captured }: Lease, usage: Usage): Usage => ({
  ...usage,
  inputTokens: Math.max(usage.inputTokens, captured.inputTokens),
  outputTokens: Math.max(usage.outputTokens, captured.outputTokens),
});

export function settled(
  state: LedgerState,
  lease: Lease,
  usage: Usage,
  basis: Settled["basis"],
  atMs: number,
): Settled {
  const heldTokens = lease.state === "RELEASED" ? 0 : tokensOf(lease.hold);
  return {
    type: "settled",
    atMs,
    requestId: lease.requestId,
    fence: lease.fence,
    usage,
    basis,
    moves: endOfHold(state, lease, atMs, spentIn(lease, usage)),
    refundedTokens: Math.max(0, heldTokens - tokensOf(usage)),
    overrunTokens: Math.max(0, tokensOf(usage) - heldTokens),
    stayMs: atMs - lease.reservedAtMs,
  };
}

/** The difference, up or down, and once. */
function correction(state: LedgerState, lease: Lease, usage: Usage, atMs: number): Corrected {
  const moves: Move[] = [];
  const spentOf = spentIn(lease, usage);
  for (const charge of lease.charges) {
    const limit = limitOf(state, charge, atMs);
    if (limit === null) continue;
    const delta = spentOf(limit) - charge.spent;
    if (delta === 0) continue;
    const parts = { returned: 0, spent: Math.max(0, delta), credited: Math.max(0, -delta) };
    moves.push(moveOf(limit, parts, lease.reservedAtMs, atMs));
  }
  const before = lease.settlement === null ? 0 : tokensOf(lease.settlement.usage);
  return {
    type: "corrected",
    atMs,
    requestId: lease.requestId,
    fence: lease.fence,
    usage,
    moves,
    deltaTokens: tokensOf(usage) - before,
  };
}

/** Ends every hold of the lease and says what is spent in its place, beyond what was spent before. */
export function endOfHold(
  state: LedgerState,
  lease: Lease,
  atMs: number,
  spentOf: (limit: LimitState) => number,
): Move[] {
  const moves: Move[] = [];
  for (const charge of lease.charges) {
    const limit = limitOf(state, charge, atMs);
    if (limit === null) continue;
    const returned = charge.amount;
    const spent = Math.max(0, spentOf(limit) - charge.spent);
    if (returned === 0 && spent === 0) continue;
    moves.push(moveOf(limit, { returned, spent, credited: 0 }, lease.reservedAtMs, atMs));
  }
  return moves;
}

/** In a gauge nothing is spent: what ends there comes back. */
const spentIn =
  (lease: Lease, usage: Usage) =>
  ({ definition: { spec } }: LimitState): number =>
    spec.kind === "gauge" ? 0 : amountOf(spec, usage, lease.price);

/** Null when a later policy dropped the limit or began another by its name, or its window has ended: nothing moves there. */
export function limitOf(state: LedgerState, charge: LeaseCharge, atMs: number): LimitState | null {
  const known = state.limits.get(charge.limit);
  const definition = known?.definition ?? state.definitions.get(limitNameOf(charge.limit));
  if (definition?.generation !== charge.generation) return null;
  return known ?? openLimit(charge.limit, definition, atMs);
}
