/**
 * Counts of texts that come again: system prompts, tools, the history of a conversation. A count is kept under the
 * tokenizer's digest and the text's, never with the text itself; so what another tokenizer counted is never found, and
 * a prompt that was answered leaves nothing readable behind.
 */
import { ContentDigest } from "./content-digest.ts";
import type { Count, Counter } from "./counter.ts";

/** Below this, counting takes no longer than looking. */
const TEXT_UNITS_MIN = 256;

/** What an entry takes in all: its key, the count, a place in a map. */
const ENTRY_BYTES = 160;

export class CountCache {
  readonly #entriesMax: number;
  readonly #digest: ContentDigest;
  /** The least recently used first. */
  readonly #counts = new Map<string, Count>();
  #policy: string | null = null;

  constructor(bytesMax: number, secret: Uint32Array) {
    this.#entriesMax = Math.floor(bytesMax / ENTRY_BYTES);
    this.#digest = new ContentDigest(secret);
  }

  get bytes(): number {
    return this.#counts.size * ENTRY_BYTES;
  }

  /** Forgets what was counted under another policy: one that was rolled back leaves nothing behind. */
  under(policy: string): void {
    if (this.#policy !== policy) this.#counts.clear();
    this.#policy = policy;
  }

  /** The counter, with a memory. What only an exhausted budget has bounded is not remembered. */
  remembering(counter: Counter): Counter {
    return {
      encoding: counter.encoding,
      digest: counter.digest,
      running: () => counter.running(),
      count: (text, budget) => {
        if (text.length < TEXT_UNITS_MIN) return counter.count(text, budget);
        const key = counter.digest + this.#digest.of(text);
        const known = this.#counts.get(key);
        const count = known ?? counter.count(text, budget);
        if (known !== undefined) this.#counts.delete(key);
        if (!count.bounded) this.#keep(key, count);
        return count;
      },
    };
  }

  #keep(key: string, count: Count): void {
    this.#counts.set(key, count);
    if (this.#counts.size <= this.#entriesMax) return;
    const [oldest] = this.#counts.keys();
    if (oldest !== undefined) this.#counts.delete(oldest);
  }
}
