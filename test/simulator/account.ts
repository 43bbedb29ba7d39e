/**
 * The account the simulated provider bills: requests and tokens per minute over a sliding window.
 * A request is admitted at its largest possible size and corrected downward when it ends, as
 * providers do. Refused requests are not counted.
 */

import type { Refusal } from "./errors.ts";
import type { Settings } from "./settings.ts";

const WINDOW_MS = 60_000;

/** What an unlimited account claims in its headers. */
const NOMINAL = { requests: 10_000, tokens: 2_000_000 } as const;

type Unit = keyof typeof NOMINAL;

interface Entry {
  readonly atMs: number;
  amount: number;
}

export class SlidingWindow {
  readonly limit: number;
  #entries: Entry[] = [];
  #used = 0;

  constructor(limit: number) {
    this.limit = limit;
  }

  remaining(nowMs: number): number {
    this.#forget(nowMs);
    return Math.max(0, this.limit - this.#used);
  }

  /** Time until `amount` fits; a whole window if it never does. */
  waitMs(amount: number, nowMs: number): number {
    this.#forget(nowMs);
    let excess = this.#used + amount - this.limit;
    if (excess <= 0) return 0;
    for (const entry of this.#entries) {
      excess -= entry.amount;
      if (excess <= 0) return entry.atMs + WINDOW_MS - nowMs;
    }
    return WINDOW_MS;
  }

  /** Time until the window is empty again. */
  resetMs(nowMs: number): number {
    this.#forget(nowMs);
    const last = this.#entries.findLast((entry) => entry.amount > 0);
    return last === undefined ? 0 : last.atMs + WINDOW_MS - nowMs;
  }

  add(amount: number, nowMs: number): Entry {
    const entry = { atMs: nowMs, amount };
    this.#entries.push(entry);
    this.#used += amount;
    return entry;
  }

  lower(entry: Entry, amount: number, nowMs: number): void {
    this.#forget(nowMs);
    if (isPast(entry, nowMs) || amount >= entry.amount) return;
    this.#used -= entry.amount - amount;
    entry.amount = amount;
  }

  #forget(nowMs: number): void {
    const kept = this.#entries.findIndex((entry) => !isPast(entry, nowMs));
    const past = this.#entries.splice(0, kept < 0 ? this.#entries.length : kept);
    for (const entry of past) this.#used -= entry.amount;
  }
}

function isPast(entry: Entry, nowMs: number): boolean {
  return entry.atMs + WINDOW_MS <= nowMs;
}

/** An admitted request; `settle` corrects its tokens once, downward. */
export interface Admission {
  settle(tokens: number, nowMs: number): void;
}

export class Account {
  readonly #requests: SlidingWindow | undefined;
  readonly #tokens: SlidingWindow | undefined;

  constructor(settings: Settings) {
    const { requestsPerMinute, tokensPerMinute } = settings;
    this.#requests = requestsPerMinute === undefined ? undefined : new SlidingWindow(requestsPerMinute);
    this.#tokens = tokensPerMinute === undefined ? undefined : new SlidingWindow(tokensPerMinute);
  }

  admit(tokens: number, nowMs: number): Admission | Refusal {
    const requestWaitMs = this.#requests?.waitMs(1, nowMs) ?? 0;
    if (requestWaitMs > 0) return rateLimited("requests", this.#requests, 1, requestWaitMs, nowMs);
    const tokenWaitMs = this.#tokens?.waitMs(tokens, nowMs) ?? 0;
    if (tokenWaitMs > 0) return rateLimited("tokens", this.#tokens, tokens, tokenWaitMs, nowMs);

    this.#requests?.add(1, nowMs);
    const window = this.#tokens;
    const entry = window?.add(tokens, nowMs);
    return {
      settle: (actual, atMs) => {
        if (entry !== undefined) window?.lower(entry, actual, atMs);
      },
    };
  }

  /** `tokens` is the size of the request being answered: all that an unlimited account can show. */
  headers(tokens: number, nowMs: number): Record<string, string> {
    return {
      ...unitHeaders("requests", this.#requests, 1, nowMs),
      ...unitHeaders("tokens", this.#tokens, tokens, nowMs),
    };
  }
}

function unitHeaders(unit: Unit, window: SlidingWindow | undefined, amount: number, nowMs: number) {
  const limit = window?.limit ?? NOMINAL[unit];
  const remaining = window?.remaining(nowMs) ?? Math.max(0, limit - amount);
  const resetMs = window?.resetMs(nowMs) ?? Math.ceil((amount / limit) * WINDOW_MS);
  return {
    [`x-ratelimit-limit-${unit}`]: String(limit),
    [`x-ratelimit-remaining-${unit}`]: String(remaining),
    [`x-ratelimit-reset-${unit}`]: duration(resetMs),
  };
}

function rateLimited(
  unit: Unit,
  window: SlidingWindow | undefined,
  requested: number,
  waitMs: number,
  nowMs: number,
): Refusal {
  const limit = window?.limit ?? NOMINAL[unit];
  const used = limit - (window?.remaining(nowMs) ?? limit);
  return {
    status: 429,
    message:
      `Rate limit reached on ${unit} per min: Limit ${limit}, Used ${used}, Requested ${requested}. ` +
      `Please try again in ${duration(waitMs)}.`,
    type: unit,
    param: null,
    code: "rate_limit_exceeded",
    retryAfter: String(Math.max(1, Math.ceil(waitMs / 1000))),
  };
}

/** `120ms`, `1.5s`, `6m0s`, `1h0m0s`. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))}ms`;
  const seconds = Math.floor(ms / 1000);
  const rest = `${(seconds % 60) + Math.round(ms % 1000) / 1000}s`;
  if (seconds < 60) return rest;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes}m${rest}`;
  return `${Math.floor(minutes / 60)}h${minutes % 60}m${rest}`;
}
