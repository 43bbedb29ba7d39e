/** Usage figures that come in parts: the newest value of each field counts, and sums are taken of what was merged. */
import type { Usage, UsageReport } from "./dialect.ts";

/**
 * A report's input includes the cached parts that it names itself. Parts that only an earlier report named stand
 * beside it: a provider that repeats the input need not repeat them.
 */
export function mergeUsage(older: UsageReport, newer: UsageReport): UsageReport {
  const merged = { ...older, ...newer };
  if (newer.inputTokens === undefined) return merged;
  const unnamed = (["cachedInputTokens", "cacheWriteTokens"] as const).filter(
    (part) => newer[part] === undefined,
  );
  const beside = unnamed.reduce((sum, part) => sum + (older[part] ?? 0), 0);
  return { ...merged, inputTokens: newer.inputTokens + beside };
}

/** Null until both halves are known. */
export function wholeUsage(report: UsageReport | null): Usage | null {
  if (report === null) return null;
  const { inputTokens, outputTokens } = report;
  if (inputTokens === undefined || outputTokens === undefined) return null;
  const { cachedInputTokens = 0, cacheWriteTokens = 0, reasoningTokens = 0 } = report;
  return { inputTokens, outputTokens, cachedInputTokens, cacheWriteTokens, reasoningTokens };
}

/** More than any request can use: a number above it is a fault or an attack, not usage. */
const USAGE_TOKENS_MAX = 1e9;

export type ReportedTokens = number | "absent" | "invalid";

/** One figure of a usage object. */
export function tokensOf(value: unknown): ReportedTokens {
  if (value === undefined || value === null) return "absent";
  const inRange =
    typeof value === "number" && Number.isInteger(value) && value >= 0 && value <= USAGE_TOKENS_MAX;
  return inRange ? value : "invalid";
}

export function amount(tokens: ReportedTokens): number {
  return typeof tokens === "number" ? tokens : 0;
}
