/** What the steps of a request hand to one another. */
import type { Idempotency, Reserve } from "../ledger/commands.ts";
import type { LedgerPolicy, ResolvedModel } from "../policy/resolve.ts";
import type { RequestClass, RoutePolicy } from "../policy/schema.ts";
import type { ChatRequest, EditedBody } from "../providers/dialect.ts";
import type { Settings } from "../settings.ts";
import type { Counter } from "../tokens/counter.ts";
import type { Caller } from "./auth.ts";

export interface Context {
  readonly env: Cloudflare.Env;
  readonly settings: Settings;
  readonly waitUntil: (work: Promise<unknown>) => void;
}

/** A request that may be asked for: who, what, of which model, on which route. */
export interface Call {
  readonly chat: ChatRequest;
  readonly caller: Caller;
  readonly target: ResolvedModel;
  readonly routeName: string;
  readonly route: RoutePolicy;
  readonly secret: string;
  readonly asking: {
    readonly class: RequestClass;
    readonly queueMs: number | null;
    readonly idempotency: Idempotency | null;
  };
}

/** A request ready for its verdict: counted, and edited as it would be sent. */
export interface Admission {
  readonly tenant: string;
  readonly call: Call;
  readonly counter: Counter;
  readonly policy: LedgerPolicy;
  readonly reserve: Reserve;
  readonly edited: EditedBody;
}
