/** How long a sound is, by its header or by its bytes. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { audioLengthOf } from "../../../src/tokens/media/audio-length.ts";
import { wav } from "./sounds.ts";

fc.configureGlobal({ seed: 20_260_101 });

const base64 = (bytes: Uint8Array) => Buffer.from(bytes).toString("base64");

describe("the length of a sound", () => {
  it.each([
    [8_000, { bitsPerSample: 8 }],
    [16_000, {}],
    [44_100, { channels: 2 }],
    [48_000, { channels: 2, bitsPerSample: 24 }],
    [24_000, { format: 0xfffe }],
  ])("is what a WAV of %i samples a second says", (rate, more) => {
    const { seconds, bounded } = audioLengthOf(base64(wav(2, rate, more)), "wav");
    expect(bounded).toBe(false);
    expect(seconds).toBeGreaterThanOrEqual(2);
    expect(seconds).toBeLessThan(2.01);
    expect(audioLengthOf(`data:audio/wav;base64,${base64(wav(2, rate, more))}`, "audio/wav").seconds).toBe(
      seconds,
    );
  });

  it("is the longest that the bytes can be where the header does not add up, or says another coding", () => {
    for (const file of [
      wav(2, 16_000, { bytesPerSecond: 4_000_000 }),
      wav(2, 16_000, { format: 0x55 }),
      wav(2, 0),
    ]) {
      expect(audioLengthOf(base64(file), "wav")).toEqual({ seconds: file.length / 8_000, bounded: true });
    }
    expect(audioLengthOf("A".repeat(4_000), "mp3")).toEqual({ seconds: 1.5, bounded: true });
  });

  it("is a number, whatever the bytes", () => {
    fc.assert(
      fc.property(fc.uint8Array(), fc.nat(60), fc.nat(255), (noise, at, value) => {
        const file = wav(1, 8_000, { bitsPerSample: 8 });
        file[at] = value;
        for (const bytes of [noise, file]) {
          const { seconds } = audioLengthOf(base64(bytes), "wav");
          expect(seconds >= bytes.length / (8 * 192_000 * 8) && seconds <= bytes.length / 2_000).toBe(true);
        }
      }),
    );
  });
});
