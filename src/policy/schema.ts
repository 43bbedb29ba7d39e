/**
 * The policy document: what an operator writes, checked in one pass with every problem named by its path.
 * What this version does not enforce is refused, never stored and ignored: a limit that is written down
 * but not held is the worst thing an admission gateway can do.
 */
import * as v from "valibot";
import {
  amount,
  amountOrUnlimited,
  integer,
  type Limit,
  LimitSchema,
  limitProblems,
  name,
  Override,
} from "./limit-schema.ts";

const DAY_MS = 86_400_000;

const tenantName = v.pipe(
  v.string(),
  v.regex(/^(\*|[a-z0-9][a-z0-9_-]{0,62})$/, "a tenant name (a-z, 0-9, _ and -) or *"),
);
const price = v.pipe(v.number(), v.finite(), v.minValue(0));

const Provider = v.strictObject({
  dialect: v.picklist(["openai", "anthropic", "gemini"]),
  /** With `/v1` for the OpenAI dialect, and without a version for the others, as in their SDKs. */
  baseUrl: v.pipe(
    v.string(),
    v.url(),
    v.regex(/^https?:\/\/[^@?#]+$/, "an http(s) URL without credentials, query or fragment"),
  ),
  apiKeySecret: v.pipe(
    v.string(),
    v.regex(/^PROVIDER_[A-Z0-9_]+$/, "a secret's name matching PROVIDER_[A-Z0-9_]+"),
  ),
  /** Account pools are not enforced by this version. */
  pool: v.optional(v.null(), null),
  /** False for servers that reject `stream_options`. */
  streamOptions: v.optional(v.boolean(), true),
  /** The member that carries an injected ceiling; the other dialects have one only. */
  outputCeilingMember: v.optional(
    v.picklist(["max_completion_tokens", "max_tokens"]),
    "max_completion_tokens",
  ),
  /** Loopback and private addresses, outside of `serve` and `npm start`. */
  allowPrivate: v.optional(v.boolean(), false),
  /** From dispatch to the provider's response headers. */
  headersTimeoutMs: v.optional(integer(1, DAY_MS), 300_000),
  /** Between two reads of the provider's body. */
  idleTimeoutMs: v.optional(integer(1, DAY_MS), 300_000),
});

/** As `tokens/media/image-price.ts` names them. */
export const IMAGE_PRICINGS = [
  "openai-gpt-4o",
  "openai-gpt-4o-mini",
  "openai-gpt-5",
  "openai-o-series",
  "openai-computer-use",
  "openai-mini",
  "openai-nano",
  "openai-o4-mini",
  "anthropic",
  "anthropic-high-resolution",
  "gemini",
  "gemini-3",
] as const;

const Model = v.strictObject({
  provider: name,
  encoding: v.optional(v.picklist(["o200k_base", "cl100k_base"]), "o200k_base"),
  contextTokens: v.pipe(amount, v.minValue(1)),
  /** 0 for a model that only embeds. */
  maxOutputTokens: amount,
  aliases: v.optional(v.array(name), []),
  /** How the model prices images; by default its name tells. */
  imagePricing: v.optional(v.picklist(IMAGE_PRICINGS)),
  /** Billed to counted input, until the model's bills have taught it; by default the dialect's, 1 for OpenAI's. */
  presumedDrift: v.optional(v.pipe(v.number(), v.finite(), v.minValue(0.5), v.maxValue(2.5))),
  /** USD per million tokens. */
  price: v.optional(v.strictObject({ input: price, cachedInput: v.optional(price), output: price })),
});

const Reservation = v.strictObject({
  mode: v.picklist(["worst_case"]),
});

const InputCount = v.strictObject({
  by: v.picklist(["gateway", "provider"]),
  timeoutMs: v.optional(integer(1, 60_000), 2_000),
  /** Without its answer: hold by the most that our own count can be off, or send nothing. */
  onUnavailable: v.optional(v.picklist(["bound", "refuse"]), "bound"),
});

const Route = v.strictObject({
  class: v.optional(v.picklist(["interactive", "batch"]), "interactive"),
  /** No answer of this route may be longer; a declared ceiling above it is lowered. */
  maxOutputTokens: v.optional(v.nullable(v.pipe(amount, v.minValue(1))), null),
  /** Write the ceiling into requests that declare none. */
  injectMaxOutputTokens: v.optional(v.boolean(), false),
  /**
   * Allowed for each part of a prompt that a request only names: an earlier answer, a conversation, a stored prompt,
   * what the provider's own tools bring. A short conversation; what is read beyond it becomes debt when it is known.
   */
  unseenInputTokens: v.optional(amount, 4096),
  /** Who counts the prompt. Asking the provider costs a call to it, for models whose vocabulary is not public. */
  inputCount: v.optional(InputCount, { by: "gateway", timeoutMs: 2_000, onUnavailable: "bound" }),
  reservation: v.optional(Reservation, { mode: "worst_case" }),
  /** Of the smallest tokens bucket. */
  perRequestMaxFraction: v.optional(
    v.nullable(v.pipe(v.number(), v.finite(), v.gtValue(0), v.maxValue(1))),
    null,
  ),
  perRequestMaxTokens: v.optional(amountOrUnlimited, null),
  /** What becomes of a request that fits, but not now. */
  onCapacity: v.optional(v.picklist(["reject", "queue"]), "reject"),
  /** The longest that a request of this route waits in the queue. */
  queueDeadlineMs: v.optional(integer(1, 600_000), 10_000),
  onDisconnect: v.optional(v.picklist(["abort"]), "abort"),
});

const Tenant = v.strictObject({
  /** `null`: this document. Named policies come with the control plane. */
  policy: v.optional(v.null(), null),
  overrides: v.optional(v.record(name, Override), {}),
});

const Document = v.strictObject({
  version: v.literal(1),
  providers: v.record(name, Provider),
  models: v.record(name, Model),
  routes: v.objectWithRest({ default: Route }, Route),
  limits: v.pipe(v.array(LimitSchema), v.minLength(1), v.maxLength(32)),
  /** Bounds of each tenant's queue; whoever comes beyond them is refused at once. */
  queue: v.optional(
    v.strictObject({
      lengthMax: v.optional(integer(0, 10_000), 256),
      tokensMax: v.optional(amountOrUnlimited, null),
    }),
    { lengthMax: 256, tokensMax: null },
  ),
  tenants: v.optional(v.record(tenantName, Tenant), {}),
  leaseTtlMs: v.optional(integer(1_000, DAY_MS), 180_000),
  reconcileAgeMaxMs: v.optional(integer(1_000, 7 * DAY_MS), 900_000),
  /** What a lease is charged whose outcome nobody learnt: all it held, or what was seen and is usual beyond. */
  reconcileCharge: v.optional(v.picklist(["charge_hold", "charge_captured"]), "charge_hold"),
});

export type Policy = v.InferOutput<typeof Document>;
export type ProviderPolicy = v.InferOutput<typeof Provider>;
export type ModelPolicy = v.InferOutput<typeof Model>;
export type RoutePolicy = v.InferOutput<typeof Route>;
export type RequestClass = RoutePolicy["class"];

/** One problem of the document. */
export interface Issue {
  readonly path: string;
  readonly expected: string;
  readonly received: string;
}

export type ParsedPolicy =
  | { readonly ok: true; readonly policy: Policy }
  | { readonly ok: false; readonly issues: readonly Issue[] };

/** Checks shape, then the references between members; reports every problem of the stage that failed. */
export function parsePolicy(raw: unknown): ParsedPolicy {
  const parsed = v.safeParse(Document, raw);
  if (!parsed.success) return { ok: false, issues: parsed.issues.flatMap(issuesOf) };
  const issues = referenceIssues(parsed.output);
  return issues.length > 0 ? { ok: false, issues } : { ok: true, policy: parsed.output };
}

function issuesOf(issue: v.BaseIssue<unknown>): Issue[] {
  const path = v.getDotPath(issue) ?? "policy";
  const expected = issue.type === "regex" || issue.expected === null ? issue.message : issue.expected;
  return [{ path, expected, received: issue.received }];
}

function referenceIssues(policy: Policy): Issue[] {
  const issues: Issue[] = [];
  const add = (path: string, expected: string, received: string) => issues.push({ path, expected, received });
  const providers = Object.keys(policy.providers);
  const claimed = new Map<string, string>();
  for (const [id, model] of Object.entries(policy.models)) {
    if (policy.providers[model.provider] === undefined) {
      add(`models.${id}.provider`, `one of ${providers.join(", ")}`, JSON.stringify(model.provider));
    }
    for (const spelling of [id, ...model.aliases]) {
      const key = spelling.trim().toLowerCase();
      const owner = claimed.get(key);
      if (owner !== undefined)
        add(`models.${id}`, `a name that only one model bears`, `"${spelling}", also of ${owner}`);
      claimed.set(key, id);
    }
  }
  const limits = new Map(policy.limits.map((limit) => [limit.name, limit]));
  if (limits.size < policy.limits.length) {
    add("limits", "each limit with a name of its own", policy.limits.map((limit) => limit.name).join(", "));
  }
  for (const [index, limit] of policy.limits.entries()) {
    for (const { member, expected, received } of limitProblems(limit))
      add(`limits.${index}.${member}`, expected, received);
  }
  const spending = policy.limits.find(({ unit }) => unit === "nano_usd");
  for (const [id, { price: known }] of Object.entries(policy.models)) {
    if (spending !== undefined && known === undefined)
      add(`models.${id}.price`, `a price: the limit ${spending.name} counts money`, "nothing");
  }
  for (const [tenant, { overrides }] of Object.entries(policy.tenants)) {
    for (const [limitName, override] of Object.entries(overrides)) {
      const path = `tenants.${tenant}.overrides.${limitName}`;
      const limit = limits.get(limitName);
      if (limit === undefined)
        add(path, `one of ${[...limits.keys()].join(", ")}`, JSON.stringify(limitName));
      else {
        for (const member of Object.keys(override))
          if (!(member in limit)) add(`${path}.${member}`, `a number of a ${limit.kind}`, member);
        for (const { member, expected, received } of limitProblems({ ...limit, ...override } as Limit))
          add(`${path}.${member}`, expected, received);
      }
    }
  }
  return issues;
}
