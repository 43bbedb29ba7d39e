/**
 * A ledger's durable record, in the object's SQLite.
 *
 *   batch(slot, seq, events, rows)  one row a write: the events it carries, as JSON. `seq` counts rows from 1;
 *                                   `slot = seq % RING_SLOTS`, so old rows are overwritten, never deleted
 *                                   (a delete is billed like a write). `rows` is what all writes of this object
 *                                   came to so far, checkpoints and alarms included: its bill.
 *   checkpoint(part, seq, data)     the whole state after row `seq`, cut into parts below the row limit.
 *   schema(version)                 one row; migrations only ever append.
 *
 * Writes of one synchronous block commit together, so a checkpoint and the batches it makes
 * superfluous can never be seen apart. Memory after a restart is checkpoint plus fold of what follows.
 */
import { evolve } from "../src/ledger/evolve.ts";
import { restore, type Snapshot, snapshot } from "../src/ledger/snapshot.ts";
import { emptyState, type LedgerState } from "../src/ledger/state.ts";
import type { RecordedEvent } from "../src/ledger/types.ts";
import { eventFromV1, eventFromV2, snapshotFromV1, snapshotFromV2 } from "../src/ledger/upgrade.ts";

/** Rows kept in the ring. */
export const RING_SLOTS = 4_096;

/** A checkpoint is due well before the ring wraps onto a row that it does not yet cover. */
const CHECKPOINT_EVERY_ROWS = RING_SLOTS / 2;

/**
 * And when the rows after it weigh as much as it does, from this length on: a restart reads at most twice
 * what it must, and a checkpoint costs no more than what led to it.
 */
const CHECKPOINT_LENGTH_MIN = 1_000_000;

/** UTF-16 units; at most three bytes each, below SQLite's 2 MB row. */
const ROW_LENGTH_MAX = 500_000;

type Migration = (sql: SqlStorage) => void;

/** Append-only: a stored database is brought forward by the entries it has not seen. */
const MIGRATIONS: readonly Migration[] = [
  (sql) => {
    sql.exec(
      `CREATE TABLE batch (slot INTEGER PRIMARY KEY, seq INTEGER NOT NULL, events TEXT NOT NULL);
       CREATE TABLE checkpoint (part INTEGER PRIMARY KEY, seq INTEGER NOT NULL, data TEXT NOT NULL);`,
    );
  },
  (sql) => {
    sql.exec("ALTER TABLE batch ADD COLUMN rows INTEGER NOT NULL DEFAULT 0");
    const batches = sql.exec<{ slot: number; events: string }>("SELECT slot, events FROM batch").toArray();
    for (const { slot, events } of batches) {
      const upgraded = (JSON.parse(events) as Parameters<typeof eventFromV1>[0][]).map(eventFromV1);
      sql.exec("UPDATE batch SET events = ? WHERE slot = ?", JSON.stringify(upgraded), slot);
    }
    const checkpoint = readCheckpoint(sql);
    sql.exec("DELETE FROM checkpoint");
    if (checkpoint !== null) {
      const old = JSON.parse(checkpoint.data) as Parameters<typeof snapshotFromV1>[0];
      writeCheckpoint(sql, checkpoint.seq, JSON.stringify(snapshotFromV1(old)));
    }
  },
  (sql) => {
    const batches = sql.exec<{ slot: number; events: string }>("SELECT slot, events FROM batch").toArray();
    for (const { slot, events } of batches) {
      const upgraded = (JSON.parse(events) as Parameters<typeof eventFromV2>[0][]).map(eventFromV2);
      sql.exec("UPDATE batch SET events = ? WHERE slot = ?", JSON.stringify(upgraded), slot);
    }
    const checkpoint = readCheckpoint(sql);
    sql.exec("DELETE FROM checkpoint");
    if (checkpoint === null) return;
    const old = JSON.parse(checkpoint.data) as Parameters<typeof snapshotFromV2>[0];
    writeCheckpoint(sql, checkpoint.seq, JSON.stringify(snapshotFromV2(old)));
  },
];

export class LedgerStore {
  readonly #sql: SqlStorage;
  #seq = 0;
  #checkpointSeq = 0;
  #checkpointLength = 0;
  #lengthSince = 0;
  #rows = 0;

  /** `atomically` undoes what its step has written when that throws; a failed migration leaves nothing half done. */
  constructor(sql: SqlStorage, atomically: (step: () => void) => void = (step) => step()) {
    this.#sql = sql;
    atomically(() => migrate(sql));
  }

  /** The state as recorded. */
  load(): LedgerState {
    const checkpoint = readCheckpoint(this.#sql);
    const state = checkpoint === null ? emptyState() : restore(JSON.parse(checkpoint.data) as Snapshot);
    this.#seq = checkpoint?.seq ?? 0;
    this.#checkpointSeq = this.#seq;
    this.#checkpointLength = checkpoint?.data.length ?? 0;
    const batches = this.#sql.exec<{ seq: number; events: string }>(
      "SELECT seq, events FROM batch WHERE seq > ? ORDER BY seq",
      this.#seq,
    );
    for (const { seq, events } of batches) {
      if (seq !== this.#seq + 1)
        throw new Error(`the record has a gap: row ${this.#seq} is followed by ${seq}`);
      for (const event of JSON.parse(events) as RecordedEvent[]) evolve(state, event);
      this.#seq = seq;
      this.#lengthSince += events.length;
    }
    const newest = this.#sql.exec<{ rows: number }>(
      "SELECT rows FROM batch WHERE slot = ?",
      this.#seq % RING_SLOTS,
    );
    this.#rows = newest.toArray()[0]?.rows ?? 0;
    return state;
  }

  /** Writes events as one; `state` is what they led to, for the checkpoint that may be due. */
  write(events: readonly RecordedEvent[], state: LedgerState): void {
    const texts = rowsOf(events);
    for (const text of texts) this.#lengthSince += text.length;
    const heavy = this.#lengthSince >= Math.max(CHECKPOINT_LENGTH_MIN, this.#checkpointLength);
    const due = heavy || this.#seq + texts.length - this.#checkpointSeq >= CHECKPOINT_EVERY_ROWS;
    const checkpoint = due ? JSON.stringify(snapshot(state)) : null;
    // First, so that the newest row tells of it: nothing else does after a restart.
    if (checkpoint !== null) this.#checkpoint(this.#seq + texts.length, checkpoint);
    for (const text of texts) {
      this.#seq += 1;
      this.#rows += 1;
      this.#sql.exec(
        "INSERT INTO batch (slot, seq, events, rows) VALUES (?, ?, ?, ?) ON CONFLICT (slot) DO UPDATE SET seq = excluded.seq, events = excluded.events, rows = excluded.rows",
        this.#seq % RING_SLOTS,
        this.#seq,
        text,
        this.#rows,
      );
    }
  }

  /** The alarm is a row as well. */
  countAlarm(): void {
    this.#rows += 1;
  }

  #checkpoint(seq: number, data: string): void {
    this.#rows += writeCheckpoint(this.#sql, seq, data);
    this.#checkpointSeq = seq;
    this.#checkpointLength = data.length;
    this.#lengthSince = 0;
  }
}

/** One row unless the events are too many for it. */
function rowsOf(events: readonly RecordedEvent[]): string[] {
  const rows: string[] = [];
  let row: string[] = [];
  let length = 0;
  for (const event of events) {
    const text = JSON.stringify(event);
    if (length + text.length > ROW_LENGTH_MAX && row.length > 0) {
      rows.push(`[${row.join(",")}]`);
      row = [];
      length = 0;
    }
    row.push(text);
    length += text.length + 1;
  }
  if (row.length > 0) rows.push(`[${row.join(",")}]`);
  return rows;
}

function readCheckpoint(sql: SqlStorage): { readonly seq: number; readonly data: string } | null {
  const parts = sql
    .exec<{ seq: number; data: string }>("SELECT seq, data FROM checkpoint ORDER BY part")
    .toArray();
  const seq = parts[0]?.seq;
  if (seq === undefined) return null;
  // A shorter checkpoint leaves the tail of a longer one behind: parts of an older seq are not its own.
  const own = parts.filter((part) => part.seq === seq).map((part) => part.data);
  return { seq, data: own.join("") };
}

/** How many rows it took. */
function writeCheckpoint(sql: SqlStorage, seq: number, data: string): number {
  let part = 0;
  for (; part * ROW_LENGTH_MAX < data.length; part += 1) {
    sql.exec(
      "INSERT INTO checkpoint (part, seq, data) VALUES (?, ?, ?) ON CONFLICT (part) DO UPDATE SET seq = excluded.seq, data = excluded.data",
      part,
      seq,
      data.slice(part * ROW_LENGTH_MAX, (part + 1) * ROW_LENGTH_MAX),
    );
  }
  return part;
}

function migrate(sql: SqlStorage): void {
  sql.exec("CREATE TABLE IF NOT EXISTS schema (id INTEGER PRIMARY KEY, version INTEGER NOT NULL)");
  const version = sql.exec<{ version: number }>("SELECT version FROM schema").toArray()[0]?.version ?? 0;
  if (version > MIGRATIONS.length)
    throw new Error(`the record is of a newer weir: schema ${version}, known ${MIGRATIONS.length}`);
  if (version === MIGRATIONS.length) return;
  for (const bringForward of MIGRATIONS.slice(version)) bringForward(sql);
  sql.exec(
    "INSERT INTO schema (id, version) VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET version = excluded.version",
    MIGRATIONS.length,
  );
}
