/**
 * How long an object takes to find its ledger again, in the runtime that it will run in: a checkpoint and the
 * fold of the rows after it. `npm run bench -- recovery` prints it.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startService } from "../../src/cli/workerd.ts";
import type { Recovery } from "./support/recovery-worker.ts";
import { keep, must, show, spreadOf } from "./support/report.ts";

const OPEN_10K_MS_MAX = 100;
const CASES = ["open=10&closed=0", "open=10000&closed=0", "open=10000&closed=10000"].flatMap((leases) => [
  leases,
  `${leases}&tail=full`,
]);

const stateDir = mkdtempSync(join(tmpdir(), "weir-recovery-"));
const service = await startService({
  entry: join(import.meta.dirname, "support/recovery-worker.ts"),
  host: "127.0.0.1",
  port: 0,
  bindings: {},
  objects: { binding: "TENANT_LEDGER", className: "TenantLedger", stateDir },
});
try {
  const recoveries = [];
  for (const leases of CASES) {
    const response = await fetch(`${service.url}/recover?${leases}`);
    if (!response.ok) throw new Error(`${leases}: ${response.status} ${await response.text()}`);
    const recovery = await response.json<Recovery>();
    const ms = spreadOf(recovery.rounds, 1);
    recoveries.push({ ...recovery, ms });
    const { open, closed, checkpointLength, tailLength, tailRows } = recovery;
    console.log(
      `${open} open and ${closed} closed leases: ${show(ms, "ms")}, ` +
        `a checkpoint of ${checkpointLength} characters and ${tailRows} rows of ${tailLength}`,
    );
  }
  for (const { open, closed, tailRows, ms } of recoveries.filter(
    (each) => each.open === 10_000 && each.closed === 0,
  ))
    must(
      `${open} open and ${closed} closed leases and ${tailRows} rows are found within ${OPEN_10K_MS_MAX} ms`,
      ms.median < OPEN_10K_MS_MAX,
    );
  keep("recovery", { recoveries });
} finally {
  await service.stop();
  rmSync(stateDir, { recursive: true, force: true });
}
