/** Usage figures as a provider reports them, none of which is believed before it was looked at. */

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
