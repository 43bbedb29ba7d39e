/** What a run has come upon, and what it must come upon. */
import type { Command } from "../../../src/ledger/commands.ts";
import type { LedgerEvent } from "../../../src/ledger/types.ts";

export class Coverage {
  readonly counts = new Map<string, number>();

  count(what: string, times = 1): void {
    this.counts.set(what, (this.counts.get(what) ?? 0) + times);
  }

  step(
    command: Command,
    event: LedgerEvent,
    { from, to, kind }: { readonly from: string; readonly to: string; readonly kind: string | null },
  ): void {
    this.count(`command ${command.type}`);
    this.count(`event ${event.type}`);
    if (event.type === "refused") this.count(`refusal ${event.code}`);
    if (event.type === "refused" || event.type === "queued") if (kind !== null) this.count(`bound ${kind}`);
    if (event.type === "settled") this.count(`basis ${event.basis}`);
    if (event.type === "released") this.count(`evidence ${event.evidence}`);
    if (event.type === "expired") this.count(`expired ${event.cause}`);
    const end = event.type === "queued" ? "PROPOSED" : event.type === "left" ? "gone" : to;
    const gone = from === "PROPOSED" && event.type === "refused" ? "refused" : end;
    if (event.type !== "unchanged" && (event.type !== "refused" || gone === "refused"))
      this.count(`edge ${from} > ${gone}`);
  }

  add(other: ReadonlyMap<string, number>): void {
    for (const [what, times] of other) this.count(what, times);
  }

  missing(required: readonly string[] = REQUIRED): string[] {
    return required.filter((what) => !this.counts.has(what));
  }

  table(): string {
    const rows = [...this.counts].toSorted(([a], [b]) => (a < b ? -1 : 1));
    const width = Math.max(...rows.map(([what]) => what.length));
    const lines: string[] = [];
    let group = "";
    for (const [what, times] of rows) {
      const first = what.split(" ")[0] ?? "";
      if (first !== group) lines.push("");
      group = first;
      lines.push(`  ${what.padEnd(width)} ${String(times).padStart(9)}`);
    }
    return lines.join("\n");
  }
}

const all = (group: string, ...names: readonly string[]): string[] => names.map((name) => `${group} ${name}`);

/** Every kind of event, every refusal, every edge between states, every limit and every way to die. */
export const REQUIRED: readonly string[] = [
  ...all(
    "command",
    "reserve",
    "admit",
    "leave",
    "dispatch",
    "running",
    "capture",
    "top_up",
    "settle",
    "release",
  ),
  ...all("command", "expire", "take_over", "resolve", "turn_window", "set_policy"),
  ...all(
    "event",
    "reserved",
    "queued",
    "left",
    "dispatched",
    "ran",
    "captured",
    "topped_up",
    "settled",
    "corrected",
  ),
  ...all(
    "event",
    "released",
    "expired",
    "taken_over",
    "forestalled",
    "policy_set",
    "window_turned",
    "unchanged",
  ),
  ...all("event", "refused"),
  ...all("refusal", "request_too_large", "tokens_exhausted", "requests_exhausted", "concurrency_exhausted"),
  ...all(
    "refusal",
    "in_flight_exhausted",
    "spend_exhausted",
    "below_batch_floor",
    "queue_full",
    "slo_infeasible",
  ),
  ...all("refusal", "deadline_exceeded", "idempotency_conflict", "request_in_progress", "need_policy"),
  ...all("refusal", "unknown_reservation", "invalid_state", "stale_fence", "already_settled"),
  ...all("bound", "bucket", "gauge", "auto", "window", "rolling", "ceiling"),
  ...all("basis", "exact", "under_estimate", "charge_hold", "charge_captured"),
  ...all("evidence", "not_sent", "provider_refused", "never_sent"),
  ...all("expired", "deadline", "session_lost", "outcome_unknown"),
  ...all("edge", "- > PROPOSED", "- > RESERVED", "- > DISPATCHED", "- > RELEASED"),
  ...all("edge", "PROPOSED > RESERVED", "PROPOSED > gone", "PROPOSED > refused", "PROPOSED > RELEASED"),
  ...all("edge", "RESERVED > DISPATCHED", "RESERVED > RUNNING", "RESERVED > SETTLED", "RESERVED > RELEASED"),
  ...all("edge", "DISPATCHED > RUNNING", "DISPATCHED > PARTIALLY_SETTLED", "DISPATCHED > SETTLED"),
  ...all("edge", "DISPATCHED > RELEASED", "DISPATCHED > RECONCILING", "DISPATCHED > DISPATCHED"),
  ...all("edge", "RUNNING > RUNNING", "RUNNING > PARTIALLY_SETTLED", "RUNNING > SETTLED"),
  ...all("edge", "RUNNING > RELEASED", "RUNNING > RECONCILING"),
  ...all("edge", "PARTIALLY_SETTLED > PARTIALLY_SETTLED", "PARTIALLY_SETTLED > SETTLED"),
  ...all("edge", "PARTIALLY_SETTLED > RECONCILING"),
  ...all("edge", "RECONCILING > RECONCILING", "RECONCILING > SETTLED", "RECONCILING > RELEASED"),
  ...all("edge", "RELEASED > SETTLED", "SETTLED > SETTLED"),
  ...all(
    "crash",
    "idle",
    "before the write",
    "write under way, lost",
    "write under way, kept",
    "riders lost",
  ),
  ...all("crash", "queue lost", "from a checkpoint"),
  ...all("network", "dropped", "repeated", "overtaken"),
  ...all("clock", "forwards", "backwards"),
  ...all("alarm", "late", "for nothing"),
  "sweep full",
];
