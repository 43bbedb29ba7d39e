/** The bodies of the reservation API. Unknown members are refused, and every problem is named at once. */
import * as v from "valibot";
import { AMOUNT_MAX, integer } from "../policy/limit-schema.ts";

const tokens = integer(0, AMOUNT_MAX);
const fence = integer(1, Number.MAX_SAFE_INTEGER);
const label = v.pipe(v.string(), v.minLength(1), v.maxLength(200));

export const Usage = v.strictObject({
  inputTokens: tokens,
  outputTokens: tokens,
  /** Part of the input. */
  cachedInputTokens: v.optional(tokens, 0),
  cacheWriteTokens: v.optional(tokens, 0),
  /** Part of the output. */
  reasoningTokens: v.optional(tokens, 0),
});

export const ReserveBody = v.strictObject({
  model: label,
  route: v.optional(label, "default"),
  class: v.optional(v.picklist(["interactive", "batch"])),
  /** As the caller counts them. */
  inputTokens: tokens,
  maxOutputTokens: tokens,
  /** The caller's own name for the prompt; part of what an idempotency key stands for. */
  digest: v.optional(label),
  deadlineMs: v.optional(integer(1, 600_000)),
});

export const VerbBody = {
  dispatch: v.strictObject({ fence }),
  running: v.strictObject({ fence, providerRequestId: v.optional(v.nullable(label), null) }),
  capture: v.strictObject({ fence, usageEventId: label, usage: Usage }),
  "top-up": v.strictObject({ fence, tokens: integer(1, AMOUNT_MAX) }),
  settle: v.strictObject({ fence, usage: Usage }),
  release: v.strictObject({ fence, evidence: v.optional(v.picklist(["not_sent", "provider_refused"])) }),
} as const;

export type Verb = keyof typeof VerbBody;
export type ReserveRequest = v.InferOutput<typeof ReserveBody>;

export type Parsed<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly message: string };

export function parse<S extends v.GenericSchema>(schema: S, body: unknown): Parsed<v.InferOutput<S>> {
  const parsed = v.safeParse(schema, body);
  if (parsed.success) return { ok: true, value: parsed.output };
  const problems = parsed.issues.map(
    (issue) =>
      `${v.getDotPath(issue) ?? "body"}: expected ${issue.expected ?? issue.message}, received ${issue.received}`,
  );
  return { ok: false, message: `${problems.join("; ")}.` };
}

export function isVerb(name: string): name is Verb {
  return Object.hasOwn(VerbBody, name);
}

/** As the ledger gives them out; whatever is longer or stranger is nobody's. */
export function isReservationId(id: string): boolean {
  return /^[A-Za-z0-9_-]{1,64}$/.test(id);
}
