import { describe, expect, it } from "vitest";
import { spanOf } from "../../src/ledger/calendar.ts";
import type { WindowSpec } from "../../src/policy/limit-schema.ts";

const QUARTER_MS = 900_000;
const DAY_MS = 86_400_000;
const at = Date.parse;

/** What the wall clock shows, read off by the platform and not by our own arithmetic. */
function wall(timeZone: string) {
  const format = new Intl.DateTimeFormat("en-CA", {
    timeZone,
    hourCycle: "h23",
    weekday: "short",
    year: "numeric",
    month: "2-digit",
    day: "2-digit",
    hour: "2-digit",
    minute: "2-digit",
  });
  return (atMs: number) => {
    const part = Object.fromEntries(format.formatToParts(atMs).map(({ type, value }) => [type, value]));
    return part as Record<"weekday" | "year" | "month" | "day" | "hour" | "minute", string>;
  };
}

type Every = WindowSpec["every"];

/** Every quarter of an hour from one instant to another at which a window of this kind begins. */
function beginnings(every: Every, timeZone: string, fromMs: number, toMs: number): number[] {
  const show = wall(timeZone);
  const found: number[] = [];
  let before = show(fromMs - QUARTER_MS);
  for (let atMs = fromMs; atMs <= toMs; atMs += QUARTER_MS) {
    const now = show(atMs);
    const otherDay = now.day !== before.day;
    const begins = {
      hour: now.minute === "00",
      day: otherDay,
      week: otherDay && now.weekday === "Mon",
      month: now.month !== before.month,
    };
    if (begins[every]) found.push(atMs);
    before = now;
  }
  return found;
}

const changes: readonly (readonly [string, string])[] = [
  ["UTC", "2024-02-29T00:00:00Z"],
  ["America/New_York", "2024-03-10T07:00:00Z"],
  ["America/New_York", "2024-11-03T06:00:00Z"],
  ["America/Sao_Paulo", "2018-11-04T03:00:00Z"], // midnight does not exist
  ["America/Sao_Paulo", "2019-02-17T02:00:00Z"], // the hour before midnight comes twice
  ["Africa/Cairo", "2023-04-27T22:00:00Z"],
  ["Africa/Cairo", "2023-10-26T21:00:00Z"],
  ["America/Havana", "2024-11-03T05:00:00Z"], // the hour after midnight comes twice
  ["Asia/Beirut", "2022-03-26T22:00:00Z"],
  ["Atlantic/Azores", "2024-10-27T01:00:00Z"],
  ["America/Nuuk", "2024-03-31T01:00:00Z"],
  ["Australia/Lord_Howe", "2024-04-06T15:00:00Z"], // half an hour
  ["Australia/Lord_Howe", "2024-10-05T15:30:00Z"],
  ["Asia/Kathmandu", "2024-06-01T00:00:00Z"],
  ["Pacific/Apia", "2011-12-30T10:00:00Z"], // a day does not exist
  ["Pacific/Kiritimati", "2024-12-31T10:00:00Z"],
  ["Europe/Berlin", "2024-12-31T23:00:00Z"],
];

describe.each(changes)("in %s around %s", (timeZone, middle) => {
  const fromMs = at(middle) - 3 * DAY_MS;
  const toMs = at(middle) + 3 * DAY_MS;

  it("days are those of the wall clock", () => {
    const days = beginnings("day", timeZone, fromMs, toMs);
    expect(days.length).toBeGreaterThanOrEqual(5);
    for (let i = 1; i < days.length; i += 1) {
      const [startsAtMs = 0, endsAtMs = 0] = [days[i - 1], days[i]];
      for (const inside of [startsAtMs, startsAtMs + 1, (startsAtMs + endsAtMs) / 2, endsAtMs - 1])
        expect(spanOf({ every: "day", timeZone }, inside)).toEqual({ startsAtMs, endsAtMs });
    }
  });

  it("every window holds its instant, and the next begins where it ends", () => {
    for (const every of ["day", "week", "month"] as const) {
      for (let atMs = fromMs; atMs < toMs; atMs += 7 * QUARTER_MS + 1) {
        const span = spanOf({ every, timeZone }, atMs);
        expect(span.startsAtMs).toBeLessThanOrEqual(atMs);
        expect(span.endsAtMs).toBeGreaterThan(atMs);
        expect(spanOf({ every, timeZone }, span.endsAtMs).startsAtMs).toBe(span.endsAtMs);
        expect(spanOf({ every, timeZone }, span.startsAtMs)).toEqual(span);
      }
    }
  });

  it("an hour ends when the wall clock shows a full one", () => {
    const show = wall(timeZone);
    for (let atMs = fromMs; atMs < toMs; atMs += 3 * QUARTER_MS + 1) {
      const { startsAtMs, endsAtMs } = spanOf({ every: "hour", timeZone }, atMs);
      expect(startsAtMs).toBeLessThanOrEqual(atMs);
      expect(endsAtMs - startsAtMs).toBe(3_600_000);
      expect(endsAtMs).toBeGreaterThan(atMs);
      const ending = show(endsAtMs - 60_000);
      // Where the clock is moved by half an hour the hour may be cut short or run over, and ends by the old clock.
      if (show(endsAtMs).minute !== "00") expect(ending.minute).toBe("59");
    }
  });
});

describe("weeks and months", () => {
  it.each(["UTC", "Europe/Berlin", "America/Sao_Paulo", "Asia/Kolkata"])(
    "of %s through leap years are those of the wall clock",
    (timeZone) => {
      const show = wall(timeZone);
      for (const year of [1972, 2000, 2018, 2023, 2024, 2100]) {
        for (let atMs = Date.UTC(year, 0, 1, 12); atMs < Date.UTC(year + 1, 0, 1); atMs += 5 * DAY_MS) {
          const month = spanOf({ every: "month", timeZone }, atMs);
          expect(show(month.startsAtMs)).toMatchObject({ day: "01", month: show(atMs).month });
          expect(show(month.startsAtMs - 1).month).not.toBe(show(atMs).month);
          expect(show(month.endsAtMs)).toMatchObject({ day: "01" });
          expect(show(month.endsAtMs - 1)).toMatchObject({
            month: show(atMs).month,
            hour: "23",
            minute: "59",
          });
          const week = spanOf({ every: "week", timeZone }, atMs);
          expect([show(week.startsAtMs).weekday, show(week.startsAtMs - 1).weekday]).toEqual(["Mon", "Sun"]);
          expect([show(week.endsAtMs).weekday, show(week.endsAtMs - 1).weekday]).toEqual(["Mon", "Sun"]);
          expect(Math.round((week.endsAtMs - week.startsAtMs) / DAY_MS)).toBe(7);
          expect(week.startsAtMs <= atMs && atMs < week.endsAtMs).toBe(true);
        }
      }
    },
  );

  it("holds before 1970 as after it", () => {
    expect(spanOf({ every: "week", timeZone: "UTC" }, at("1969-12-30T00:00:00Z"))).toEqual({
      startsAtMs: at("1969-12-29T00:00:00Z"),
      endsAtMs: at("1970-01-05T00:00:00Z"),
    });
    expect(spanOf({ every: "hour", timeZone: "UTC" }, -1)).toEqual({ startsAtMs: -3_600_000, endsAtMs: 0 });
  });
});
