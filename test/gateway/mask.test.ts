import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { SecretMask } from "../../src/gateway/mask.ts";

const encoder = new TextEncoder();

function through(secret: string, text: string, places: readonly number[]): string {
  const mask = new SecretMask(secret);
  const bytes = encoder.encode(text);
  const cuts = [0, ...places.map((place) => place % (bytes.length + 1)), bytes.length].toSorted(
    (a, b) => a - b,
  );
  const out: number[] = [];
  for (let i = 1; i < cuts.length; i += 1) out.push(...mask.push(bytes.subarray(cuts[i - 1], cuts[i])));
  out.push(...mask.flush());
  return new TextDecoder().decode(Uint8Array.from(out));
}

describe("the mask", () => {
  it("takes the secret out, however the network cuts it, and leaves every other byte", () => {
    // Few letters, so that false starts and overlaps with the secret are common.
    const text = fc.array(fc.constantFrom("s", "k", "-", "sk-", "sk-sks", "sk-sk-", "x"), { maxLength: 30 });
    fc.assert(
      fc.property(text, fc.array(fc.nat(), { maxLength: 8 }), (words, places) => {
        const whole = words.join("");
        expect(through("sk-sks", whole, places)).toBe(whole.replaceAll("sk-sks", "[masked]"));
      }),
      { numRuns: 2_000, seed: 20261130 },
    );
  });

  it("hands the very same chunk on when there is nothing of the secret in it", () => {
    const chunk = encoder.encode('data: {"choices":[]}\n\n');
    expect(new SecretMask("sk-secret").push(chunk)).toEqual(chunk);
    expect(new SecretMask("sk-secret").push(chunk).buffer).toBe(chunk.buffer);
  });
});
