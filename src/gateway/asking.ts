/** What a caller asks of the ledger beside the size: class, place in the queue, and whether this is a repeat. */
import type { Idempotency } from "../ledger/commands.ts";
import type { Scope } from "../policy/limit-schema.ts";
import { lowestClass, type ResolvedModel } from "../policy/resolve.ts";
import type { RequestClass, RoutePolicy } from "../policy/schema.ts";
import type { Caller } from "./auth.ts";
import { IDEMPOTENCY_KEY_LENGTH_MAX, QUEUE_MS_MAX } from "./bounds.ts";

/** A header that could not be read, in words. */
export class HeaderProblem extends Error {
  override readonly name = "HeaderProblem";
}

/** Identity and priority come from the key; a header may only lower the class. */
export function classOf(
  asked: string | null,
  caller: Caller,
  route: RoutePolicy,
): RequestClass | HeaderProblem {
  if (asked !== null && asked !== "interactive" && asked !== "batch")
    return new HeaderProblem(`x-weir-class: expected interactive or batch, got ${JSON.stringify(asked)}.`);
  return lowestClass(caller.class, route.class, asked ?? undefined);
}

/** How long it may wait; null on a route that does not let anyone wait. A caller may want less than the route gives. */
export function queueMsOf(asked: string | null, route: RoutePolicy): number | null | HeaderProblem {
  let askedMs = QUEUE_MS_MAX;
  if (asked !== null) {
    askedMs = /^\d{1,9}$/.test(asked.trim()) ? Number(asked) : Number.NaN;
    if (!(askedMs >= 1))
      return new HeaderProblem(
        `x-weir-deadline-ms: expected whole milliseconds from 1, got ${JSON.stringify(asked)}.`,
      );
  }
  return route.onCapacity === "queue" ? Math.min(askedMs, route.queueDeadlineMs) : null;
}

/** Scoped to the virtual key: nobody can squat on another's. */
export async function idempotencyOf(
  key: string | null,
  caller: Caller,
  body: unknown,
  repeat: Idempotency["repeat"],
): Promise<Idempotency | null | HeaderProblem> {
  if (key === null) return null;
  if (key.length < 1 || key.length > IDEMPOTENCY_KEY_LENGTH_MAX)
    return new HeaderProblem(
      `idempotency-key: expected 1 to ${IDEMPOTENCY_KEY_LENGTH_MAX} characters, got ${key.length}.`,
    );
  return { key: `${caller.keyId}:${key}`, digest: await digestOf(body), repeat };
}

export function scopeOf(
  caller: Caller,
  requestClass: RequestClass,
  route: string,
  { id, provider }: ResolvedModel,
): Scope {
  return {
    class: requestClass,
    route,
    model: id,
    pool: provider.pool ?? "",
    key: caller.keyId,
    user: caller.user ?? "",
  };
}

/** Of what was said, not of how it was spelled: order and white space of the members do not count. */
async function digestOf(body: unknown): Promise<string> {
  const bytes = new TextEncoder().encode(JSON.stringify(sorted(body)));
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest.subarray(0, 16), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1));
  // Pairs, for a member may bear any name, `__proto__` too.
  return entries.map(([name, member]) => [name, sorted(member)]);
}
