/** Sizes out of headers, and the providers' own examples of what they cost. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { IMAGE_PRICINGS as IN_POLICY } from "../../../src/policy/schema.ts";
import { Base64Bytes } from "../../../src/tokens/media/base64-bytes.ts";
import { IMAGE_PRICINGS, imagePrice, imagePricingOf } from "../../../src/tokens/media/image-price.ts";
import { imageSizeOf } from "../../../src/tokens/media/image-size.ts";
import { gif, jpeg, png, webpExtended, webpLossless, webpLossy } from "./images.ts";

fc.configureGlobal({ seed: 20_260_101 });

const MAKERS = { png, gif, jpeg, webpLossy, webpLossless, webpExtended };
const base64 = (bytes: Uint8Array) => Buffer.from(bytes).toString("base64");

describe.each(Object.entries(MAKERS))("%s", (_, make) => {
  it.each([
    [1, 1],
    [640, 480],
    [1568, 1],
    [4096, 8191],
  ])("is %i x %i", (width, height) => {
    const file = base64(make(width, height));
    expect(imageSizeOf(file)).toEqual({ width, height });
    expect(imageSizeOf(`data:image/whatever;base64,${file}`)).toEqual({ width, height });
    expect(imageSizeOf(Buffer.from(make(width, height)).toString("base64url"))).toEqual({ width, height });
  });

  it("cut short, or with no area, has no size; and no change of a byte makes it throw", () => {
    const file = make(640, 480);
    for (let length = 0; length < 24; length++) {
      const size = imageSizeOf(base64(file.subarray(0, length)));
      if (size !== null) expect(size).toEqual({ width: 640, height: 480 });
    }
    fc.assert(
      fc.property(fc.nat(file.length - 1), fc.nat(255), fc.nat(file.length), (at, value, length) => {
        const changed = Uint8Array.from(file);
        changed[at] = value;
        const size = imageSizeOf(base64(changed.subarray(0, length)));
        expect(size === null || (size.width > 0 && size.height > 0)).toBe(true);
      }),
    );
  });
});

describe("headers", () => {
  it("are read behind a frame that lies far into the file, and behind filling", () => {
    expect(imageSizeOf(base64(jpeg(800, 600, 60_000)))).toEqual({ width: 800, height: 600 });
    const filled = Uint8Array.from([0xff, 0xd8, 0xff, 0xff, 0xff, ...jpeg(800, 600).subarray(3)]);
    expect(imageSizeOf(base64(filled))).toEqual({ width: 800, height: 600 });
  });

  it("of a file that is nothing but segments are not read for ever", () => {
    const segments = Uint8Array.from({ length: 4_000_000 }, (_, i) => [0xff, 0xe0, 0, 2][i % 4] ?? 0);
    segments.set([0xff, 0xd8, 0xff, 0xe0, 0, 2]);
    const startedAt = performance.now();
    expect(imageSizeOf(base64(segments))).toBeNull();
    expect(performance.now() - startedAt).toBeLessThan(200);
  });

  it("are not seen in anything else", () => {
    fc.assert(fc.property(fc.string(), (text) => imageSizeOf(text) === null));
    fc.assert(fc.property(fc.uint8Array(), (bytes) => imageSizeOf(base64(bytes)) === null));
  });
});

describe("bytes out of base64", () => {
  it("are those that were encoded", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 40 }), (bytes) => {
        const read = new Base64Bytes(base64(bytes));
        expect(read.length).toBe(bytes.length);
        for (const [index, byte] of bytes.entries()) expect(read.at(index)).toBe(byte);
        expect(read.at(bytes.length)).toBeNaN();
      }),
    );
  });
});

describe("prices", () => {
  const price = (...args: Parameters<typeof imagePrice>) => imagePrice(...args).tokens;

  it.each([
    // OpenAI's examples: 1024 x 1024 is four tiles, 2048 x 4096 six; 150 x 150 is one in its price calculator.
    ["openai-gpt-4o", 1024, 1024, 765],
    ["openai-gpt-4o", 2048, 4096, 1105],
    ["openai-gpt-4o", 4096, 8192, 1105],
    ["openai-gpt-4o", 150, 150, 255],
    ["openai-gpt-4o-mini", 1024, 1024, 25_501],
    ["openai-gpt-5", 1024, 1024, 630],
    ["openai-o-series", 1024, 1024, 675],
    // Its examples of patches: 1,024 and 1,452 of them, times the model's factor.
    ["openai-mini", 1024, 1024, Math.ceil(1024 * 1.62)],
    ["openai-mini", 1800, 2400, Math.ceil(1452 * 1.62)],
    ["openai-nano", 1024, 1024, Math.ceil(1024 * 2.46)],
    ["openai-o4-mini", 1800, 2400, Math.ceil(1452 * 1.72)],
    // Anthropic's: 200 x 200 is about 54, 1000 x 1000 about 1,334, and none is above about 1,600.
    ["anthropic", 200, 200, 54],
    ["anthropic", 1000, 1000, 1334],
    ["anthropic", 4000, 4000, 1600],
    // Gemini's: 258 up to 384 pixels, and six crops of 960 x 540.
    ["gemini", 384, 384, 258],
    ["gemini", 960, 540, 6 * 258],
  ] as const)("%s: %i x %i is %i", (pricing, width, height, tokens) => {
    expect(imagePrice(pricing, "high", { width, height })).toEqual({ tokens, bounded: false });
  });

  it("low detail is the base where there are tiles", () => {
    expect(price("openai-gpt-4o", "low", { width: 4096, height: 4096 })).toBe(85);
    expect(price("openai-gpt-4o-mini", "low", null)).toBe(2833);
    expect(price("openai-mini", "low", { width: 1024, height: 1024 })).toBe(1659);
  });

  it("what nobody saw costs the most that a size can, and says so", () => {
    for (const pricing of IMAGE_PRICINGS) {
      const unseen = imagePrice(pricing, "auto", null);
      expect(unseen.bounded).toBe(true);
      if (pricing === "gemini") continue;
      fc.assert(
        fc.property(
          fc.integer({ min: 1, max: 20_000 }),
          fc.integer({ min: 1, max: 20_000 }),
          (width, height) => {
            const seen = price(pricing, "high", { width, height });
            expect(seen).toBeGreaterThan(0);
            expect(seen).toBeLessThanOrEqual(unseen.tokens);
          },
        ),
      );
    }
  });

  it("can be named in a policy, each of them", () => {
    expect(IN_POLICY).toEqual(IMAGE_PRICINGS);
  });

  it("are found by a model's name", () => {
    expect(imagePricingOf("gpt-4o-mini-2024-07-18")).toBe("openai-gpt-4o-mini");
    expect(imagePricingOf("GPT-4o")).toBe("openai-gpt-4o");
    expect(imagePricingOf("gpt-4.1-nano")).toBe("openai-nano");
    expect(imagePricingOf("anthropic/claude-sonnet-4")).toBe("anthropic");
    expect(imagePricingOf("some-vision-model")).toBe("openai-gpt-4o");
  });
});
