/** A query's members, by allow-list: what is not known to be harmless is refused, never dropped in silence. */
import type { Malformed } from "./dialect.ts";

/** By member, the values it may have. */
export type AllowedQuery = Readonly<Record<string, readonly string[]>>;

export function problemOfQuery(
  query: URLSearchParams,
  allowed: AllowedQuery,
  credential: string | null,
): Malformed | null {
  const seen = new Set<string>();
  for (const [name, value] of query) {
    if (name === credential) continue;
    const values = Object.hasOwn(allowed, name) ? allowed[name] : undefined;
    if (values === undefined)
      // The value stays out of the message: it may be a key.
      return problem(name, `expected no query member but ${Object.keys(allowed).join(", ")}`);
    if (!values.includes(value)) return problem(name, `expected ${values.join(" or ")}`);
    if (seen.has(name)) return problem(name, "expected at most once");
    seen.add(name);
  }
  return null;
}

/** What goes upstream: the members on the list, and nothing else. Empty, or with its question mark. */
export function passedQuery(query: URLSearchParams, allowed: AllowedQuery): string {
  const passed = new URLSearchParams([...query].filter(([name]) => Object.hasOwn(allowed, name))).toString();
  return passed === "" ? "" : `?${passed}`;
}

const SHOWN_UNITS_MAX = 40;

function problem(name: string, expected: string): Malformed {
  return {
    param: null,
    message: `query: ${expected}, got ${JSON.stringify(name.slice(0, SHOWN_UNITS_MAX))}`,
  };
}
