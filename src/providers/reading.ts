/** Readings that every dialect has in common. */
import type { Reading } from "./dialect.ts";

export const NOTHING: Reading = {
  usage: null,
  text: "",
  answerId: null,
  finishedChoices: 0,
  error: false,
  usageOnly: false,
  malformed: false,
};

export const MALFORMED: Reading = { ...NOTHING, malformed: true };

/** Several payloads as one: glued into one event, or the elements of a list. */
export function joinReadings(readings: readonly Reading[]): Reading {
  return {
    usage: readings.findLast((reading) => reading.usage !== null)?.usage ?? null,
    text: readings.map((reading) => reading.text).join(""),
    answerId: readings.find((reading) => reading.answerId !== null)?.answerId ?? null,
    finishedChoices: readings.reduce((sum, reading) => sum + reading.finishedChoices, 0),
    error: readings.some((reading) => reading.error),
    usageOnly: false,
    malformed: readings.some((reading) => reading.malformed),
  };
}
