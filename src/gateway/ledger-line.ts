/** One request's line to its tenant's ledger: a session while it holds, a fresh stub when it breaks. */
import type { TenantLedger } from "../../durable-objects/tenant-ledger.ts";
import type { LeaseCommand, Reserve, SetPolicy } from "../ledger/commands.ts";
import type { LedgerEvent } from "../ledger/types.ts";
import type { LedgerPolicy } from "../policy/resolve.ts";
import { SETTLE_RETRY_WAITS_MS } from "./bounds.ts";

/** Names are prefixed by their version: a later layout starts from new objects, never from misread ones. */
export function ledgerOf(
  namespace: DurableObjectNamespace<TenantLedger>,
  tenant: string,
): DurableObjectStub<TenantLedger> {
  return namespace.getByName(`v1:${tenant}`);
}

/** The session as its stub shows it, before and after it has opened. */
interface SessionStub extends Disposable {
  reserve(command: Reserve): Promise<LedgerEvent>;
  granted(): Promise<LedgerEvent>;
  run(command: LeaseCommand | SetPolicy): Promise<LedgerEvent>;
  keep(): Promise<void>;
}

export class LedgerLine {
  readonly #namespace: DurableObjectNamespace<TenantLedger>;
  readonly #tenant: string;
  #session: SessionStub;

  constructor(namespace: DurableObjectNamespace<TenantLedger>, tenant: string) {
    this.#namespace = namespace;
    this.#tenant = tenant;
    // Not awaited: what is called on it travels with it, in one round trip and one billed call.
    this.#session = this.#open();
  }

  /**
   * `reserved`, `refused`, or `left` for a caller who went while queued. The object learns a policy that it does
   * not know in the same session. Rejects when it cannot be reached.
   */
  async reserve(command: Reserve, policy: LedgerPolicy, signal: AbortSignal): Promise<LedgerEvent> {
    const startedAtMs = Date.now();
    const reply = await this.#ask(command, policy);
    if (reply.type !== "queued") return reply;
    try {
      return await this.#wait(command.requestId, signal);
    } catch (error) {
      // The object began anew, and its queue with it: once more, for what is left of the time.
      const queueMs = reply.deadlineAtMs - reply.atMs - (Date.now() - startedAtMs);
      if (isOverloaded(error) || queueMs < 1) throw error;
      this.close();
      this.#session = this.#open();
      const again = await this.#ask({ ...command, queueMs }, policy);
      return again.type === "queued" ? this.#wait(command.requestId, signal) : again;
    }
  }

  /** Retried on fresh stubs when the session is lost: every lease command is idempotent. Null when all failed. */
  async send(command: LeaseCommand): Promise<LedgerEvent | null> {
    let failure: unknown;
    try {
      return await this.#session.run(command);
    } catch (error) {
      failure = error;
    }
    for (const waitMs of SETTLE_RETRY_WAITS_MS) {
      // An overloaded object is not helped by more calls; the lease's deadline will settle the matter.
      if (isOverloaded(failure)) break;
      await new Promise((resolve) => setTimeout(resolve, waitMs));
      try {
        return await ledgerOf(this.#namespace, this.#tenant).run(command);
      } catch (error) {
        failure = error;
      }
    }
    console.error(
      JSON.stringify({
        weir: "ledger_call_lost",
        command: command.type,
        requestId: command.requestId,
        error: String(failure),
      }),
    );
    return null;
  }

  /** The lease outlives this line: its holder answers for it from now on. */
  async keep(): Promise<void> {
    await this.#session.keep();
  }

  /** Ends the session; the object then closes whatever was left open. */
  close(): void {
    this.#session[Symbol.dispose]();
  }

  #open(): SessionStub {
    return ledgerOf(this.#namespace, this.#tenant).open() as unknown as SessionStub;
  }

  async #ask(command: Reserve, policy: LedgerPolicy): Promise<LedgerEvent> {
    const reply = await this.#session.reserve(command);
    if (reply.type !== "refused" || reply.code !== "need_policy") return reply;
    await this.#session.run({ type: "set_policy", policy });
    return this.#session.reserve(command);
  }

  /** Whoever goes says so, for nobody else can tell the ledger in time. */
  async #wait(requestId: string, signal: AbortSignal): Promise<LedgerEvent> {
    const session = this.#session;
    const granted = session.granted();
    let leave = () => {};
    const left = new Promise<LedgerEvent>((resolve, reject) => {
      leave = () => {
        session
          .run({ type: "leave", requestId, cause: "caller_left" })
          // A grant that came first stands, and is given back by whoever finds that the caller has gone.
          .then((reply) => (reply.type === "left" ? resolve(reply) : granted.then(resolve, reject)), reject);
      };
    });
    signal.addEventListener("abort", leave);
    if (signal.aborted) leave();
    try {
      return await Promise.race([granted, left]);
    } finally {
      signal.removeEventListener("abort", leave);
    }
  }
}

function isOverloaded(error: unknown): boolean {
  return typeof error === "object" && error !== null && "overloaded" in error && error.overloaded === true;
}
