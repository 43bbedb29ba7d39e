/**
 * The counters, one per encoding, loaded on first use and kept for the isolate's life. Vocabularies and split patterns
 * are js-tiktoken's; its encoder is not used, because its merge is quadratic and its construction takes a second.
 */
import { BytePairCounter } from "./byte-pair-counter.ts";
import { CountCache } from "./count-cache.ts";
import type { Counter, EncodingName } from "./counter.ts";
import { readVocabulary } from "./vocabulary.ts";

/** Literal specifiers, so that a bundler can see them. */
const FILES: Readonly<Record<EncodingName, () => Promise<{ readonly default: ArrayBuffer }>>> = {
  o200k_base: () => import("./tables/o200k_base.bin"),
  cl100k_base: () => import("./tables/cl100k_base.bin"),
};

/** Thirteen thousand texts. */
const CACHE_BYTES_MAX = 2 ** 21;

const counters = new Map<EncodingName, Promise<Counter>>();
/** Made when first needed: the secret may not be drawn while the module is loaded. */
let cache: CountCache | null = null;

/** One load per encoding however many requests ask at once; a failed load is forgotten, so the next request tries again. */
export function loadEncoding(name: EncodingName): Promise<Counter> {
  const known = counters.get(name);
  if (known !== undefined) return known;
  const load = FILES[name]().then((file): Counter => new BytePairCounter(name, readVocabulary(file.default)));
  counters.set(name, load);
  load.catch(() => counters.get(name) === load && counters.delete(name));
  return load;
}

/** Puts another in an encoding's place, for whoever asks from now on; a call that has its counter goes on with it. */
export function installEncoding(counter: Counter): void {
  counters.set(counter.encoding, Promise.resolve(counter));
}

/** The encoding with a memory of what was counted, which lasts as long as the policy does. */
export async function loadCounter(name: EncodingName, policyHash: string): Promise<Counter> {
  const counter = await loadEncoding(name);
  cache ??= new CountCache(CACHE_BYTES_MAX, crypto.getRandomValues(new Uint32Array(2)));
  cache.under(policyHash);
  return cache.remembering(counter);
}
