/**
 * A ledger's durable record, in the object's SQLite.
 *
 *   batch(slot, seq, events)       one row a turn: the events it made, as JSON. `seq` counts turns from 1;
 *                                  `slot = seq % RING_SLOTS`, so old rows are overwritten, never deleted
 *                                  (a delete is billed like a write).
 *   checkpoint(part, seq, data)    the whole state after turn `seq`, cut into parts below the row limit.
 *   schema(version)                one row; migrations only ever append.
 *
 * Writes of one synchronous block commit together, so a checkpoint and the batches it makes
 * superfluous can never be seen apart. Memory after a restart is checkpoint plus fold of what follows.
 */
import { evolve } from "../src/ledger/evolve.ts";
import { restore, type Snapshot, snapshot } from "../src/ledger/snapshot.ts";
import { emptyState, type LedgerState } from "../src/ledger/state.ts";
import type { RecordedEvent } from "../src/ledger/types.ts";

/** Turns kept in the ring. A restart folds at most this many. */
export const RING_SLOTS = 4_096;

/** A checkpoint is due well before the ring wraps onto a batch that it does not yet cover. */
const CHECKPOINT_EVERY_TURNS = RING_SLOTS / 2;

/** UTF-16 units; at most three bytes each, below SQLite's 2 MB row. */
const PART_LENGTH = 500_000;

/** Append-only: a stored database is brought forward by the entries it has not seen. */
const MIGRATIONS: readonly string[] = [
  `CREATE TABLE batch (slot INTEGER PRIMARY KEY, seq INTEGER NOT NULL, events TEXT NOT NULL);
   CREATE TABLE checkpoint (part INTEGER PRIMARY KEY, seq INTEGER NOT NULL, data TEXT NOT NULL);`,
];

export class LedgerStore {
  readonly #sql: SqlStorage;
  #seq = 0;
  #checkpointSeq = 0;

  constructor(sql: SqlStorage) {
    this.#sql = sql;
    migrate(sql);
  }

  /** The state as recorded. */
  load(): LedgerState {
    const parts = this.#sql
      .exec<{ seq: number; data: string }>("SELECT seq, data FROM checkpoint ORDER BY part")
      .toArray();
    const newest = parts[0]?.seq ?? 0;
    // A shorter checkpoint leaves the tail of a longer one behind: parts of an older seq are not its own.
    const data = parts.filter((part) => part.seq === newest).map((part) => part.data);
    const state = newest === 0 ? emptyState() : restore(JSON.parse(data.join("")) as Snapshot);
    this.#seq = newest;
    this.#checkpointSeq = newest;
    const batches = this.#sql.exec<{ seq: number; events: string }>(
      "SELECT seq, events FROM batch WHERE seq > ? ORDER BY seq",
      newest,
    );
    for (const { seq, events } of batches) {
      if (seq !== this.#seq + 1)
        throw new Error(`the record has a gap: turn ${this.#seq} is followed by ${seq}`);
      for (const event of JSON.parse(events) as RecordedEvent[]) evolve(state, event);
      this.#seq = seq;
    }
    return state;
  }

  /** Writes one turn's events; `state` is what they led to, for the checkpoint that may be due. */
  record(events: readonly RecordedEvent[], state: LedgerState): void {
    this.#seq += 1;
    this.#sql.exec(
      "INSERT INTO batch (slot, seq, events) VALUES (?, ?, ?) ON CONFLICT (slot) DO UPDATE SET seq = excluded.seq, events = excluded.events",
      this.#seq % RING_SLOTS,
      this.#seq,
      JSON.stringify(events),
    );
    if (this.#seq - this.#checkpointSeq >= CHECKPOINT_EVERY_TURNS) this.#checkpoint(state);
  }

  #checkpoint(state: LedgerState): void {
    const data = JSON.stringify(snapshot(state));
    for (let part = 0; part * PART_LENGTH < data.length; part += 1) {
      this.#sql.exec(
        "INSERT INTO checkpoint (part, seq, data) VALUES (?, ?, ?) ON CONFLICT (part) DO UPDATE SET seq = excluded.seq, data = excluded.data",
        part,
        this.#seq,
        data.slice(part * PART_LENGTH, (part + 1) * PART_LENGTH),
      );
    }
    this.#checkpointSeq = this.#seq;
  }
}

function migrate(sql: SqlStorage): void {
  sql.exec("CREATE TABLE IF NOT EXISTS schema (id INTEGER PRIMARY KEY, version INTEGER NOT NULL)");
  const version = sql.exec<{ version: number }>("SELECT version FROM schema").toArray()[0]?.version ?? 0;
  if (version > MIGRATIONS.length)
    throw new Error(`the record is of a newer weir: schema ${version}, known ${MIGRATIONS.length}`);
  if (version === MIGRATIONS.length) return;
  for (const migration of MIGRATIONS.slice(version)) sql.exec(migration);
  sql.exec(
    "INSERT INTO schema (id, version) VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET version = excluded.version",
    MIGRATIONS.length,
  );
}
