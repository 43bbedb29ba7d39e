/** A ledger as its durable record tells it: the object's own file, read without the object. */
import { createHash, createHmac } from "node:crypto";
import { copyFile, mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { evolve } from "../../src/ledger/evolve.ts";
import { restore, type Snapshot } from "../../src/ledger/snapshot.ts";
import { emptyState, type LedgerState } from "../../src/ledger/state.ts";
import type { RecordedEvent } from "../../src/ledger/types.ts";

const NAMESPACE = "weir-TenantLedger";

export interface LedgerRecord {
  /** Checkpoint and fold. */
  readonly state: LedgerState;
  /** Of the ring's rows that are still there, oldest first. */
  readonly events: readonly RecordedEvent[];
  /** How many batches there have been. */
  readonly batches: number;
  /** What all writes of the object came to, by its own count: checkpoints and alarms included. */
  readonly rowsWritten: number;
}

/** Of this tenant, or of the only one that has a ledger in this state directory. */
export async function readRecord(stateDir: string, tenant?: string): Promise<LedgerRecord> {
  const ledgers = join(stateDir, NAMESPACE);
  const files = (await readdir(ledgers)).filter((name) => !name.startsWith("metadata"));
  const databases = files.filter((name) => name.endsWith(".sqlite"));
  const [database] = tenant === undefined ? databases : [`${objectIdOf(`v1:${tenant}`)}.sqlite`];
  if (database === undefined || (tenant === undefined && databases.length > 1))
    throw new Error(`expected one ledger, found ${databases.join(", ")}`);
  // A copy: opening the file itself could check its log into it under the runtime's hands.
  const copy = await mkdtemp(join(tmpdir(), "weir-record-"));
  try {
    // The log last: what it holds beyond the database's own pages is whole up to its last commit.
    const copied = files.filter((name) => name === database || name === `${database}-wal`).toSorted();
    for (const name of copied) await copyFile(join(ledgers, name), join(copy, name));
    return recordIn(new DatabaseSync(join(copy, database)));
  } finally {
    await rm(copy, { recursive: true, force: true });
  }
}

export const foldedRecord = async (stateDir: string, tenant?: string): Promise<LedgerState> =>
  (await readRecord(stateDir, tenant)).state;

/** How the runtime names the object of a name: the start of a keyed hash of it, twice. */
function objectIdOf(name: string): string {
  const key = createHash("sha256").update(NAMESPACE).digest();
  const half = createHmac("sha256", key).update(name).digest().subarray(0, 16);
  const check = createHmac("sha256", key).update(half).digest().subarray(0, 16);
  return Buffer.concat([half, check]).toString("hex");
}

function recordIn(database: DatabaseSync): LedgerRecord {
  const parts = database.prepare("SELECT seq, data FROM checkpoint ORDER BY part").all();
  const newest = Number(parts[0]?.["seq"] ?? 0);
  const data = parts.filter((part) => part["seq"] === newest).map((part) => part["data"]);
  const state = newest === 0 ? emptyState() : restore(JSON.parse(data.join("")) as Snapshot);
  const rows = database.prepare("SELECT seq, events, rows FROM batch ORDER BY seq").all();
  const events: RecordedEvent[] = [];
  for (const row of rows) {
    const own = JSON.parse(String(row["events"])) as RecordedEvent[];
    events.push(...own);
    if (Number(row["seq"]) > newest) for (const event of own) evolve(state, event);
  }
  database.close();
  const last = rows.at(-1);
  return { state, events, batches: Number(last?.["seq"] ?? 0), rowsWritten: Number(last?.["rows"] ?? 0) };
}
