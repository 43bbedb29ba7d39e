/** Seeded chance: the same seed and body always give the same lengths and the same words. */

export type Random = () => number;

/** Answers are right-skewed in real traffic: most are short, a few are very long. */
const OUTPUT_SIGMA = 0.6;
const LONGEST_OUTPUT = 16_384;

/** FNV-1a over UTF-16 code units, 32 bits. */
export function hash(text: string): number {
  let value = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) {
    value = Math.imul(value ^ text.charCodeAt(i), 0x01000193);
  }
  return value >>> 0;
}

/** mulberry32: uniform in [0, 1). */
export function seededRandom(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

/** Box-Muller; `1 - u` keeps the logarithm away from zero. */
function standardNormal(random: Random): number {
  return Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
}

export function logNormal(random: Random, median: number, sigma: number): number {
  return median * Math.exp(sigma * standardNormal(random));
}

export function outputLength(random: Random, median: number): number {
  const drawn = Math.round(logNormal(random, median, OUTPUT_SIGMA));
  return Math.min(Math.max(drawn, 1), LONGEST_OUTPUT);
}
