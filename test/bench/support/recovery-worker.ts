/** Runs inside the runtime: an object that fills its record and reads it again, as a restart does. */
import { DurableObject } from "cloudflare:workers";
import { LedgerStore } from "../../../durable-objects/ledger-store.ts";
import type { Command } from "../../../src/ledger/commands.ts";
import { emptyState } from "../../../src/ledger/state.ts";
import { turn } from "../../../src/ledger/turn.ts";
import { isRecorded, type RecordedEvent } from "../../../src/ledger/types.ts";
import { bucket, gauge, policyOf, requests, reserveOf, slots, usage } from "../../support/ledger.ts";

export interface Recovery {
  readonly open: number;
  readonly closed: number;
  readonly checkpointLength: number;
  readonly tailLength: number;
  readonly tailRows: number;
  readonly rounds: readonly number[];
}

const LIMITS = [
  bucket(1_000_000_000, 0),
  requests(1_000_000),
  slots(1_000_000),
  gauge("in_flight_tokens", 1_000_000_000),
];

interface Env {
  readonly TENANT_LEDGER: DurableObjectNamespace<TenantLedger>;
}

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    const { pathname, searchParams } = new URL(request.url);
    if (pathname !== "/recover") return new Response("ok");
    const [open, closed] = [Number(searchParams.get("open")), Number(searchParams.get("closed"))];
    const stub = env.TENANT_LEDGER.getByName(pathname + searchParams.toString());
    return Response.json(await stub.recover(open, closed, searchParams.get("tail") === "full"));
  },
};

export class TenantLedger extends DurableObject {
  recover(open: number, closed: number, fullTail: boolean): Recovery {
    const { sql } = this.ctx.storage;
    fill(sql, open, closed, fullTail);
    const rounds: number[] = [];
    let leases = 0;
    for (let round = 0; round < 9; round += 1) {
      const startedAtMs = performance.now();
      leases = new LedgerStore(sql).load().leases.size;
      rounds.push(performance.now() - startedAtMs);
    }
    if (leases < open + closed) throw new Error(`${leases} leases were found again`);
    return { open, closed, ...shapeOf(sql), rounds };
  }
}

function fill(sql: SqlStorage, open: number, closed: number, fullTail: boolean): void {
  const state = emptyState();
  const store = new LedgerStore(sql);
  let events: RecordedEvent[] = [];
  let nowMs = 1_000_000;
  const run = (command: Command) => {
    nowMs += 1;
    events.push(...turn(state, command, nowMs).events.filter(isRecorded));
  };
  const write = () => {
    store.write(events, state);
    events = [];
  };
  const settled = (id: string) => {
    run(reserveOf(id, 100, 50));
    run({ type: "settle", requestId: id, fence: 1, usage: usage(100, 10), basis: "exact" });
  };
  run({ type: "set_policy", policy: policyOf(LIMITS, { leaseTtlMs: 86_400_000 }) });
  for (let i = 0; i < Math.max(open, closed); i += 1) {
    if (i < open) run(reserveOf(`open-${i}`, 100, 50));
    if (i < closed) settled(`closed-${i}`);
    if (i % 64 === 63) write();
  }
  write();
  // The longest that a restart can find: just before the next checkpoint is due.
  const { checkpointLength, tailLength } = shapeOf(sql);
  const dueAt = Math.max(1_000_000, checkpointLength) - 20_000;
  for (let length = fullTail ? tailLength : dueAt, i = 0; length < dueAt; i += 1) {
    settled(`tail-${i}`);
    if (i % 8 < 7) continue;
    length += JSON.stringify(events).length;
    write();
  }
}

function shapeOf(sql: SqlStorage): Pick<Recovery, "checkpointLength" | "tailLength" | "tailRows"> {
  const n = (query: string) => Number(sql.exec(query).one()["n"]);
  const seq = n("SELECT coalesce(max(seq), 0) AS n FROM checkpoint");
  return {
    checkpointLength: n(`SELECT coalesce(sum(length(data)), 0) AS n FROM checkpoint WHERE seq = ${seq}`),
    tailLength: n(`SELECT coalesce(sum(length(events)), 0) AS n FROM batch WHERE seq > ${seq}`),
    tailRows: n(`SELECT count(*) AS n FROM batch WHERE seq > ${seq}`),
  };
}
