/**
 * How a test tells the provider to misbehave: a header `x-sim-NAME: value`, or the same pair behind
 * the model name (`gpt-4o-mini?status=429&retryAfter=2`), which also survives a gateway that
 * forwards no unknown headers. The header wins. Names are compared without regard to case.
 */

import { invalidRequest, type Refusal } from "./errors.ts";

const HEADER_PREFIX = "x-sim-";

/** Whole numbers, each with the smallest and the largest value that make sense. */
const COUNTS = {
  /** Exact output length of each choice (the caller's own ceiling still holds). */
  tokens: [0, 1_000_000],
  /** Refuse with this status and an OpenAI-shaped body. */
  status: [400, 599],
  /** Break the connection after this many tokens; 0 without `stream`: before the headers. */
  drop: [0, 1_000_000],
  /** Send an error event after this many tokens, then close. */
  errorAfter: [0, 1_000_000],
  /** Fall silent after this many tokens. */
  stall: [0, 1_000_000],
  /** Milliseconds between the comments that fill a stall; absent: true silence. */
  heartbeat: [1, 600_000],
  /** Milliseconds between tokens. */
  slow: [0, 600_000],
  /** Milliseconds before the first token. */
  firstMs: [0, 600_000],
  /** Deliver the byte stream in pieces of this many bytes. */
  cut: [1, 1_000_000],
} as const;

const FLAGS = [
  "html", // 200 with a login page
  "fail500text", // 502 with an HTML page
  "stallHeaders", // no answer at all
  "nousage", // never report usage
  "usageInChoices", // usage in the last chunk that still has choices
  "continuousUsage", // running usage in every chunk
  "nodone", // no [DONE]
  "crlf", // CRLF line ends, id lines and ping comments
  "unicode", // words outside ASCII
] as const;

const TEXTS = ["retryAfter", "redirect"] as const;

type Count = keyof typeof COUNTS;
type Flag = (typeof FLAGS)[number];
type Text = (typeof TEXTS)[number];

export interface Directives {
  readonly counts: Readonly<Partial<Record<Count, number>>>;
  readonly flags: ReadonlySet<Flag>;
  readonly texts: Readonly<Partial<Record<Text, string>>>;
}

const COUNT_NAMES = Object.keys(COUNTS) as Count[];
const KNOWN = [...COUNT_NAMES, ...FLAGS, ...TEXTS];

/** Splits `model?name=value&…` into the model itself and its directives. */
export function splitModel(model: string): { model: string; query: string } {
  const mark = model.indexOf("?");
  if (mark < 0) return { model, query: "" };
  return { model: model.slice(0, mark), query: model.slice(mark + 1) };
}

export function readDirectives(query: string, headers: Headers): Directives | Refusal {
  const given = new Map<string, string>();
  for (const [name, value] of new URLSearchParams(query)) given.set(name.toLowerCase(), value);
  for (const [name, value] of headers) {
    if (name.startsWith(HEADER_PREFIX)) given.set(name.slice(HEADER_PREFIX.length), value);
  }

  const unknown = [...given.keys()].find((name) => !KNOWN.some((known) => isNamed(known, name)));
  if (unknown !== undefined) {
    return invalidRequest(`Unknown directive "${unknown}". Known: ${KNOWN.join(", ")}.`, unknown);
  }

  const counts: Partial<Record<Count, number>> = {};
  for (const name of COUNT_NAMES) {
    const text = given.get(name.toLowerCase());
    if (text === undefined) continue;
    const [least, most] = COUNTS[name];
    const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
    if (!(value >= least && value <= most)) {
      return invalidRequest(
        `Directive "${name}" takes a number from ${least} to ${most}, not "${text}".`,
        name,
      );
    }
    counts[name] = value;
  }

  const texts: Partial<Record<Text, string>> = {};
  for (const name of TEXTS) {
    const text = given.get(name.toLowerCase());
    if (text !== undefined) texts[name] = text;
  }
  return { counts, flags: new Set(FLAGS.filter((name) => isOn(given.get(name.toLowerCase())))), texts };
}

function isNamed(known: string, name: string): boolean {
  return known.toLowerCase() === name;
}

function isOn(value: string | undefined): boolean {
  return value !== undefined && value !== "0" && value !== "false";
}
