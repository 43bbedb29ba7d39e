/**
 * Some providers quote the key they were given. It is taken out of whatever they send; everything else
 * passes byte for byte, and only a piece that could be the start of the key waits for what follows it.
 */
const MASK = new TextEncoder().encode("[masked]");
const NOTHING = new Uint8Array(0);

export class SecretMask {
  readonly #secret: Uint8Array;
  /** The end of what came, as far as it is a beginning of the secret. */
  #held: Uint8Array = NOTHING;

  /** `secret` is not empty: settings see to it. */
  constructor(secret: string) {
    this.#secret = new TextEncoder().encode(secret);
  }

  /** What may go on now: the very same chunk where no part of the secret is in it. */
  push(chunk: Uint8Array): Uint8Array {
    const bytes = joinedPair(this.#held, chunk);
    const pieces: Uint8Array[] = [];
    let from = 0;
    for (let at = indexOf(bytes, this.#secret, 0); at >= 0; at = indexOf(bytes, this.#secret, from)) {
      pieces.push(bytes.subarray(from, at), MASK);
      from = at + this.#secret.length;
    }
    const keptLength = overlap(bytes.subarray(from), this.#secret);
    // Copied: the chunk's memory is not ours to keep.
    this.#held = keptLength === 0 ? NOTHING : bytes.slice(bytes.length - keptLength);
    const rest = bytes.subarray(from, bytes.length - keptLength);
    return pieces.length === 0 ? rest : [...pieces, rest].reduce(joinedPair);
  }

  /** At the end nothing follows: what was held was not the secret. */
  flush(): Uint8Array {
    const held = this.#held;
    this.#held = NOTHING;
    return held;
  }
}

export function masking(secret: string): TransformStream<Uint8Array, Uint8Array> {
  const mask = new SecretMask(secret);
  return new TransformStream({
    transform: (chunk, controller) => enqueue(controller, mask.push(chunk)),
    flush: (controller) => enqueue(controller, mask.flush()),
  });
}

function enqueue(controller: TransformStreamDefaultController<Uint8Array>, bytes: Uint8Array): void {
  if (bytes.length > 0) controller.enqueue(bytes);
}

function joinedPair(first: Uint8Array, second: Uint8Array): Uint8Array {
  if (first.length === 0) return second;
  const both = new Uint8Array(first.length + second.length);
  both.set(first);
  both.set(second, first.length);
  return both;
}

function indexOf(bytes: Uint8Array, wanted: Uint8Array, from: number): number {
  const first = wanted[0] ?? 0;
  for (let at = bytes.indexOf(first, from); at >= 0; at = bytes.indexOf(first, at + 1)) {
    if (at + wanted.length > bytes.length) return -1;
    if (startsWith(bytes, wanted, at, wanted.length)) return at;
  }
  return -1;
}

/** How many bytes at the end of `bytes` are a beginning of `wanted`, short of all of it. */
function overlap(bytes: Uint8Array, wanted: Uint8Array): number {
  const longest = Math.min(bytes.length, wanted.length - 1);
  for (let length = longest; length > 0; length -= 1) {
    if (startsWith(bytes, wanted, bytes.length - length, length)) return length;
  }
  return 0;
}

function startsWith(bytes: Uint8Array, wanted: Uint8Array, at: number, length: number): boolean {
  for (let index = 0; index < length; index += 1) if (bytes[at + index] !== wanted[index]) return false;
  return true;
}
