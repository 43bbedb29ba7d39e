/** A history as a person reads it: what was done, when, and what came of it. */
import type { Command } from "../../../src/ledger/commands.ts";
import type { LedgerEvent } from "../../../src/ledger/types.ts";
import { Broken } from "./check.ts";
import { Coverage } from "./coverage.ts";
import { CORE, type Core } from "./object.ts";
import { type Deed, Stage } from "./stage.ts";

export function history(deeds: readonly Deed[], core: Core = CORE): string {
  const stage = new Stage(core, new Coverage(), 1);
  const lines: string[] = [];
  const first = deeds.find((deed) => "nowMs" in deed);
  const beginMs = first !== undefined && "nowMs" in first ? first.nowMs : 0;
  if (beginMs > 0) lines.push(`times are from ${beginMs} (${new Date(beginMs).toISOString()})`);
  for (const deed of deeds) {
    lines.push(told(deed, beginMs));
    const seen = stage.watch();
    try {
      stage.do(deed);
    } catch (error) {
      if (!(error instanceof Broken)) throw error;
      lines.push(...seen().map((event) => `    ${toldEvent(event, beginMs)}`), `  BROKEN ${error.message}`);
      break;
    }
    lines.push(...seen().map((event) => `    ${toldEvent(event, beginMs)}`));
  }
  return lines.join("\n");
}

function told(deed: Deed, beginMs: number): string {
  const when = "nowMs" in deed ? `${signed(deed.nowMs - beginMs)} ms ` : "";
  switch (deed.type) {
    case "call":
      return `${when}${toldCommand(deed.command)}${deed.dies === true ? " … and the object dies before the write" : ""}`;
    case "preview":
      return `${when}asks what would become of: ${toldCommand(deed.command)}`;
    case "alarm":
      return `${when}alarm`;
    case "arrive":
      return "the write under way is durable";
    case "flush":
      return "the riders are written";
    case "crash":
      return `the object dies; what was under way is ${deed.arrives ? "kept" : "lost"}`;
  }
}

const signed = (ms: number): string => (ms < 0 ? String(ms) : `+${ms}`);
/** What says nothing is left out, and so is what another line says. */
const SELDOM = new Set([
  "standings",
  "command",
  "rung",
  "policyHash",
  "proxied",
  "ttlMs",
  "cacheWriteTokens",
]);

function brief(value: unknown): string {
  const text = JSON.stringify(value, (member: string, inner: unknown) =>
    inner === null || inner === "" || SELDOM.has(member) || (Array.isArray(inner) && inner.length === 0)
      ? undefined
      : inner,
  );
  return (text ?? "").replaceAll('"', "").replaceAll(",", ", ");
}

function toldCommand(command: Command): string {
  const { type, ...rest } = command;
  return `${type} ${brief(rest)}`;
}

function toldEvent(event: LedgerEvent, beginMs: number): string {
  const { type, atMs, ...rest } = event;
  return `-> ${signed(atMs - beginMs)} ${type} ${brief(rest)}`;
}
