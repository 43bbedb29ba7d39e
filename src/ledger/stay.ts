/**
 * How long calls stay, for the gauges that derive themselves from it: Little's law says that a rate of
 * arrival times a stay is how many are inside. Bounded: a mean, and two histograms of half an hour each.
 */
import { AUTO_MEAN_WEIGHT, AUTO_MEDIAN_MAX, AUTO_SAMPLES_MIN } from "./bounds.ts";

const HALF_HOUR_MS = 1_800_000;
/** Bins grow by an eighth of a doubling: the median is true to nine percent. */
const BINS_PER_DOUBLING = 8;

export interface Stay {
  samples: number;
  meanMs: number;
  /** When the newer histogram began. */
  sinceMs: number;
  newer: Record<string, number>;
  older: Record<string, number>;
}

export const noStay = (): Stay => ({ samples: 0, meanMs: 0, sinceMs: 0, newer: {}, older: {} });

export function observeStay(stay: Stay, stayMs: number, atMs: number): void {
  if (atMs - stay.sinceMs >= HALF_HOUR_MS) {
    stay.older = atMs - stay.sinceMs >= 2 * HALF_HOUR_MS ? {} : stay.newer;
    stay.newer = {};
    stay.sinceMs = atMs;
  }
  stay.samples += 1;
  // The plain mean of the first samples, then one that moves slowly.
  stay.meanMs += (stayMs - stay.meanMs) * Math.max(AUTO_MEAN_WEIGHT, 1 / stay.samples);
  const bin = String(Math.round(BINS_PER_DOUBLING * Math.log2(stayMs + 1)));
  stay.newer[bin] = (stay.newer[bin] ?? 0) + 1;
}

/** What a gauge goes by; null until enough was seen. */
export function believedStayMs(stay: Stay): number | null {
  if (stay.samples < AUTO_SAMPLES_MIN) return null;
  return Math.min(stay.meanMs, AUTO_MEDIAN_MAX * medianMs(stay));
}

function medianMs({ newer, older }: Stay): number {
  const counts = new Map<number, number>();
  let total = 0;
  for (const histogram of [newer, older]) {
    for (const [bin, count] of Object.entries(histogram)) {
      counts.set(Number(bin), (counts.get(Number(bin)) ?? 0) + count);
      total += count;
    }
  }
  let seen = 0;
  for (const [bin, count] of [...counts].toSorted(([a], [b]) => a - b)) {
    seen += count;
    if (seen * 2 >= total) return 2 ** (bin / BINS_PER_DOUBLING) - 1;
  }
  return Infinity;
}

/** Calls or tokens that may be inside at once; at least one, or nothing would ever get in. */
export function littlesLaw(allowancePerMinute: number, headroom: number, stayMs: number): number {
  return Math.max(1, Math.floor((allowancePerMinute / 60_000) * headroom * stayMs));
}
