/** Chance that can be repeated: each step of a run has a source of its own, so that leaving one out leaves the others alone. */
export class Chance {
  #state: number;

  constructor(seed: number, step: number) {
    this.#state = (Math.imul(seed + 1, 0x9e3779b1) ^ Math.imul(step + 1, 0x85ebca6b)) >>> 0;
    this.#next();
    this.#next();
  }

  /** Whole, from 0 to `below` - 1. */
  below(below: number): number {
    return Math.floor((this.#next() / 0x1_0000_0000) * below);
  }

  between(least: number, most: number): number {
    return least + this.below(most - least + 1);
  }

  /** One time in `times`. */
  once(times: number): boolean {
    return this.below(times) === 0;
  }

  pick<T>(from: readonly T[]): T {
    const picked = from[this.below(from.length)];
    if (picked === undefined) throw new Error("nothing to pick from");
    return picked;
  }

  #next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let t = this.#state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (t ^ (t >>> 14)) >>> 0;
  }
}
