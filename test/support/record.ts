/** A ledger as its durable record tells it: the object's own file, folded without the object. */
import { copyFile, mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { evolve } from "../../src/ledger/evolve.ts";
import { restore, type Snapshot } from "../../src/ledger/snapshot.ts";
import { emptyState, type LedgerState } from "../../src/ledger/state.ts";
import type { RecordedEvent } from "../../src/ledger/types.ts";

/** Of the only tenant that has a ledger in this state directory. */
export async function foldedRecord(stateDir: string): Promise<LedgerState> {
  const ledgers = join(stateDir, "weir-TenantLedger");
  const files = (await readdir(ledgers)).filter((name) => !name.startsWith("metadata"));
  const databases = files.filter((name) => name.endsWith(".sqlite"));
  const [database] = databases;
  if (database === undefined || databases.length > 1)
    throw new Error(`expected one ledger, found ${databases.join(", ")}`);
  // A copy: opening the file itself could check its log into it under the runtime's hands.
  const copy = await mkdtemp(join(tmpdir(), "weir-record-"));
  try {
    const copied = files.filter((name) => name === database || name === `${database}-wal`);
    for (const name of copied) await copyFile(join(ledgers, name), join(copy, name));
    return folded(new DatabaseSync(join(copy, database)));
  } finally {
    await rm(copy, { recursive: true, force: true });
  }
}

function folded(database: DatabaseSync): LedgerState {
  const parts = database.prepare("SELECT seq, data FROM checkpoint ORDER BY part").all();
  const newest = Number(parts[0]?.["seq"] ?? 0);
  const data = parts.filter((part) => part["seq"] === newest).map((part) => part["data"]);
  const state = newest === 0 ? emptyState() : restore(JSON.parse(data.join("")) as Snapshot);
  for (const { events } of database
    .prepare("SELECT events FROM batch WHERE seq > ? ORDER BY seq")
    .all(newest)) {
    for (const event of JSON.parse(String(events)) as RecordedEvent[]) evolve(state, event);
  }
  database.close();
  return state;
}
