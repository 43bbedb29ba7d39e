/** Letters between clients and ledgers: some are lost, some come twice, some late, and none waits for another. */
import type { Coverage } from "./coverage.ts";
import type { Chance } from "./random.ts";

interface Letter<T> {
  readonly body: T;
  readonly sentAtMs: number;
  readonly dueAtMs: number;
}

export class Network<T> {
  readonly #chance: Chance;
  readonly #coverage: Coverage;
  readonly #letters: Letter<T>[] = [];

  constructor(chance: Chance, coverage: Coverage) {
    this.#chance = chance;
    this.#coverage = coverage;
  }

  send(body: T, atMs: number): void {
    if (this.#chance.once(25)) return this.#coverage.count("network dropped");
    this.#post(body, atMs);
    if (!this.#chance.once(20)) return;
    this.#coverage.count("network repeated");
    this.#post(body, atMs);
  }

  #post(body: T, atMs: number): void {
    const delayMs = this.#chance.once(40)
      ? this.#chance.between(1_000, 40_000)
      : this.#chance.between(1, this.#chance.once(6) ? 900 : 60);
    this.#letters.push({ body, sentAtMs: atMs, dueAtMs: atMs + delayMs });
  }

  isDue(atMs: number): boolean {
    return this.#letters.some(({ dueAtMs }) => dueAtMs <= atMs);
  }

  /** Any of those that may have arrived. */
  take(atMs: number): T | null {
    const due = this.#letters.filter(({ dueAtMs }) => dueAtMs <= atMs);
    if (due.length === 0) return null;
    const letter = this.#chance.pick(due);
    this.#letters.splice(this.#letters.indexOf(letter), 1);
    if (this.#letters.some(({ sentAtMs }) => sentAtMs < letter.sentAtMs))
      this.#coverage.count("network overtaken");
    return letter.body;
  }
}
