/** One request's line to its tenant's ledger: a session while it holds, a fresh stub when it breaks. */
import type { TenantLedger } from "../../durable-objects/tenant-ledger.ts";
import type { LeaseCommand, LedgerEvent, Reserve, SetPolicy } from "../ledger/types.ts";
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
  run(command: LeaseCommand | SetPolicy): Promise<LedgerEvent>;
}

export class LedgerLine {
  readonly #namespace: DurableObjectNamespace<TenantLedger>;
  readonly #tenant: string;
  readonly #session: SessionStub;

  constructor(namespace: DurableObjectNamespace<TenantLedger>, tenant: string) {
    this.#namespace = namespace;
    this.#tenant = tenant;
    // Not awaited: what is called on it travels with it, in one round trip and one billed call.
    this.#session = ledgerOf(namespace, tenant).open() as unknown as SessionStub;
  }

  /** The object learns a policy it does not know in the same session; rejects when it cannot be reached. */
  async reserve(command: Reserve, policy: LedgerPolicy): Promise<LedgerEvent> {
    const reply = await this.#session.reserve(command);
    if (reply.type !== "refused" || reply.code !== "need_policy") return reply;
    await this.#session.run({ type: "set_policy", policy });
    return this.#session.reserve(command);
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
        return (await ledgerOf(this.#namespace, this.#tenant).run(command)) as LedgerEvent;
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

  /** Ends the session; the object then closes whatever was left open. */
  close(): void {
    this.#session[Symbol.dispose]();
  }
}

function isOverloaded(error: unknown): boolean {
  return typeof error === "object" && error !== null && "overloaded" in error && error.overloaded === true;
}
