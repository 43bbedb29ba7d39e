/** Calendar windows in a time zone, without a clock: which hour, day, week or month an instant lies in. */
import type { WindowSpec } from "../policy/limit-schema.ts";
import type { Span } from "./types.ts";

const HOUR_MS = 3_600_000;
const DAY_MS = 86_400_000;
/** 1970-01-01 was a Thursday, and weeks begin on Monday. */
const EPOCH_WEEKDAY = 3;

export function spanOf({ every, timeZone }: Pick<WindowSpec, "every" | "timeZone">, atMs: number): Span {
  const localMs = atMs + offsetMs(timeZone, atMs);
  if (every === "hour") {
    const startsAtMs = atMs - mod(localMs, HOUR_MS);
    return { startsAtMs, endsAtMs: startsAtMs + HOUR_MS };
  }
  const day = Math.floor(localMs / DAY_MS);
  const [first, next] = daysOf(every, day);
  const endsAtMs = startOfDay(timeZone, next);
  // Where a clock was put back across midnight, the day before came once more.
  return {
    startsAtMs: startOfDay(timeZone, first),
    endsAtMs: endsAtMs > atMs ? endsAtMs : startOfDay(timeZone, next + 1),
  };
}

/** The window's first day, and the first day after it; days since 1970. */
function daysOf(every: "day" | "week" | "month", day: number): readonly [number, number] {
  switch (every) {
    case "day":
      return [day, day + 1];
    case "week": {
      const monday = day - mod(day + EPOCH_WEEKDAY, 7);
      return [monday, monday + 7];
    }
    case "month": {
      const { year, month } = civilOf(day);
      return [dayOf(year, month, 1), month === 12 ? dayOf(year + 1, 1, 1) : dayOf(year, month + 1, 1)];
    }
  }
}

/** The first instant that belongs to a local day: midnight, or later where a clock change skips midnight. */
function startOfDay(timeZone: string, day: number): number {
  const midnight = day * DAY_MS;
  const before = midnight - offsetMs(timeZone, midnight - DAY_MS);
  const after = midnight - offsetMs(timeZone, midnight + DAY_MS);
  // Around a change both are candidates; the earlier one counts if it really lies in the day.
  for (const candidate of [Math.min(before, after), Math.max(before, after)]) {
    if (Math.floor((candidate + offsetMs(timeZone, candidate)) / DAY_MS) === day) return candidate;
  }
  return Math.max(before, after);
}

const formats = new Map<string, Intl.DateTimeFormat>();

/** Local time minus UTC. */
function offsetMs(timeZone: string, atMs: number): number {
  let format = formats.get(timeZone);
  if (format === undefined) {
    format = new Intl.DateTimeFormat("en-US", {
      timeZone,
      calendar: "gregory",
      hourCycle: "h23",
      year: "numeric",
      month: "numeric",
      day: "numeric",
      hour: "numeric",
      minute: "numeric",
      second: "numeric",
    });
    formats.set(timeZone, format);
  }
  const part: Record<string, number> = {};
  for (const { type, value } of format.formatToParts(atMs)) part[type] = Number(value);
  const { year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0 } = part;
  const localMs = dayOf(year, month, day) * DAY_MS + ((hour * 60 + minute) * 60 + second) * 1_000;
  return localMs - (atMs - mod(atMs, 1_000));
}

/** Days since 1970 of a civil date; years begin in March here, so that a leap day ends one. */
function dayOf(year: number, month: number, day: number): number {
  const y = month <= 2 ? year - 1 : year;
  const era = Math.floor(y / 400);
  const yearOfEra = y - era * 400;
  const dayOfYear = Math.floor((153 * (month + (month > 2 ? -3 : 9)) + 2) / 5) + day - 1;
  const dayOfEra = yearOfEra * 365 + Math.floor(yearOfEra / 4) - Math.floor(yearOfEra / 100) + dayOfYear;
  return era * 146_097 + dayOfEra - 719_468;
}

function civilOf(day: number): { readonly year: number; readonly month: number } {
  const z = day + 719_468;
  const era = Math.floor(z / 146_097);
  const dayOfEra = z - era * 146_097;
  const yearOfEra = Math.floor(
    (dayOfEra -
      Math.floor(dayOfEra / 1_460) +
      Math.floor(dayOfEra / 36_524) -
      Math.floor(dayOfEra / 146_096)) /
      365,
  );
  const dayOfYear = dayOfEra - (365 * yearOfEra + Math.floor(yearOfEra / 4) - Math.floor(yearOfEra / 100));
  const monthFromMarch = Math.floor((5 * dayOfYear + 2) / 153);
  const month = monthFromMarch < 10 ? monthFromMarch + 3 : monthFromMarch - 9;
  return { year: yearOfEra + era * 400 + (month <= 2 ? 1 : 0), month };
}

const mod = (value: number, by: number): number => ((value % by) + by) % by;
