/**
 * What an image costs to read, in input tokens, as the providers publish it.
 *
 *   OpenAI      developers.openai.com/api/docs/guides/images-vision ("Calculating costs")
 *   Anthropic   platform.claude.com/docs/en/build-with-claude/vision ("Evaluate image size", "Calculate image costs")
 *   Gemini      ai.google.dev/gemini-api/docs/tokens ("Multimodal tokens"), .../image-understanding, .../media-resolution
 */
import type { ImageSize } from "./image-size.ts";

/** Tiles of 512 pixels on top of a base, patches of 32 pixels times a factor, or another provider's way. */
type Way =
  | { readonly by: "tiles"; readonly base: number; readonly tile: number }
  | { readonly by: "patches"; readonly factor: number }
  | { readonly by: "area"; readonly sideMax: number; readonly tokensMax: number }
  | { readonly by: "crops" }
  | { readonly by: "resolution" };

const WAYS = {
  "openai-gpt-4o": { by: "tiles", base: 85, tile: 170 },
  "openai-gpt-4o-mini": { by: "tiles", base: 2833, tile: 5667 },
  "openai-gpt-5": { by: "tiles", base: 70, tile: 140 },
  "openai-o-series": { by: "tiles", base: 75, tile: 150 },
  "openai-computer-use": { by: "tiles", base: 65, tile: 129 },
  "openai-mini": { by: "patches", factor: 1.62 },
  "openai-nano": { by: "patches", factor: 2.46 },
  "openai-o4-mini": { by: "patches", factor: 1.72 },
  anthropic: { by: "area", sideMax: 1568, tokensMax: 1600 },
  "anthropic-high-resolution": { by: "area", sideMax: 2576, tokensMax: 4784 },
  gemini: { by: "crops" },
  "gemini-3": { by: "resolution" },
} as const satisfies Readonly<Record<string, Way>>;

export type ImagePricing = keyof typeof WAYS;
export const IMAGE_PRICINGS = Object.keys(WAYS) as [ImagePricing, ...ImagePricing[]];

/** By the beginning of a model's name; the first that fits. */
const FAMILIES: readonly (readonly [RegExp, ImagePricing])[] = [
  [/^gpt-4o-mini/, "openai-gpt-4o-mini"],
  [/^gpt-(4\.1|5)-mini/, "openai-mini"],
  [/^gpt-(4\.1|5)-nano/, "openai-nano"],
  [/^gpt-5/, "openai-gpt-5"],
  [/^o4-mini/, "openai-o4-mini"],
  [/^o[13]/, "openai-o-series"],
  [/^computer-use/, "openai-computer-use"],
  // Opus 4.7 and what came after it look closer.
  [/^claude-(3|haiku-4|(opus|sonnet)-4(?![.-][7-9]))/, "anthropic"],
  [/^claude/, "anthropic-high-resolution"],
  [/^gemini-[12]/, "gemini"],
  [/^gemini/, "gemini-3"],
];

/** For a model that the policy says nothing about; whatever is not known is priced as GPT-4o is. */
export function imagePricingOf(model: string): ImagePricing {
  // Routers put the maker before the name.
  const name = model.toLowerCase().replace(/^.*\//, "");
  return FAMILIES.find(([beginning]) => beginning.test(name))?.[1] ?? "openai-gpt-4o";
}

export interface ImagePrice {
  readonly tokens: number;
  /** The most that an image of unknown size costs. */
  readonly bounded: boolean;
}

/**
 * `size` is null where nobody could see it: an address, an id, a header that cannot be read. `detail` is what the
 * request says of it, if anything.
 */
export function imagePrice(pricing: ImagePricing, detail: unknown, size: ImageSize | null): ImagePrice {
  const way: Way = WAYS[pricing];
  if (way.by === "tiles" && detail === "low") return { tokens: way.base, bounded: false };
  // What is spent on a resolution is the most that it may be.
  if (way.by === "resolution") return { tokens: resolutionTokens(detail), bounded: true };
  return { tokens: priceOf(way, size), bounded: size === null };
}

function priceOf(way: Exclude<Way, { by: "resolution" }>, size: ImageSize | null): number {
  switch (way.by) {
    case "tiles":
      return way.base + way.tile * (size === null ? TILES_MAX : tilesOf(size));
    case "patches":
      return Math.ceil(way.factor * (size === null ? PATCHES_MAX : patchesOf(size)));
    case "area":
      return size === null ? way.tokensMax : Math.min(way.tokensMax, areaTokensOf(size, way.sideMax));
    case "crops":
      return CROP_TOKENS * (size === null ? CROPS_PRESUMED : cropsOf(size));
  }
}

const TILE = 512;
const TILED_SIDE_MAX = 2048;
const TILED_SHORT_SIDE_MAX = 768;
const TILES_MAX = (TILED_SIDE_MAX / TILE) * Math.ceil(TILED_SHORT_SIDE_MAX / TILE);

/** Made to fit a square of 2048, then to a shorter side of 768; never enlarged. */
function tilesOf({ width, height }: ImageSize): number {
  const fitted = Math.min(1, TILED_SIDE_MAX / Math.max(width, height));
  const scale = fitted * Math.min(1, TILED_SHORT_SIDE_MAX / (fitted * Math.min(width, height)));
  return sideIn(width * scale, TILE) * sideIn(height * scale, TILE);
}

const PATCH = 32;
const PATCHES_MAX = 1536;

/** Shrunk, if need be, until whole patches of one side and the other are at most 1,536. */
function patchesOf({ width, height }: ImageSize): number {
  const patches = sideIn(width, PATCH) * sideIn(height, PATCH);
  if (patches <= PATCHES_MAX) return patches;
  const shrunk = Math.sqrt((PATCH * PATCH * PATCHES_MAX) / (width * height));
  const [across, down] = [(width * shrunk) / PATCH, (height * shrunk) / PATCH];
  const whole = Math.min(Math.floor(across) / across, Math.floor(down) / down);
  // A strip of less than a patch has no whole one.
  if (whole === 0) return PATCHES_MAX;
  return Math.min(PATCHES_MAX, sideIn(across * whole, 1) * sideIn(down * whole, 1));
}

const PIXELS_PER_TOKEN = 750;

/** Made to fit a square of that side; never enlarged. */
function areaTokensOf({ width, height }: ImageSize, sideMax: number): number {
  const scale = Math.min(1, sideMax / Math.max(width, height));
  return Math.ceil((width * scale * height * scale) / PIXELS_PER_TOKEN);
}

const CROP_TOKENS = 258;
const UNCROPPED_SIDE_MAX = 384;
/** An image four times as wide as high. */
const CROPS_PRESUMED = 12;

/** One up to 384 pixels either way; else squares of two thirds of the shorter side, which are at most 768 wide. */
function cropsOf({ width, height }: ImageSize): number {
  if (Math.max(width, height) <= UNCROPPED_SIDE_MAX) return 1;
  const unit = Math.max(1, Math.floor(Math.min(width, height) / 1.5));
  return sideIn(width, unit) * sideIn(height, unit);
}

const RESOLUTION_TOKENS: ReadonlyMap<unknown, number> = new Map([
  ["MEDIA_RESOLUTION_LOW", 280],
  ["MEDIA_RESOLUTION_MEDIUM", 560],
  ["MEDIA_RESOLUTION_HIGH", 1120],
  ["MEDIA_RESOLUTION_ULTRA_HIGH", 2240],
]);
const RESOLUTION_TOKENS_PRESUMED = 1120;

function resolutionTokens(resolution: unknown): number {
  return RESOLUTION_TOKENS.get(resolution) ?? RESOLUTION_TOKENS_PRESUMED;
}

/** Parts that a side is cut into; what a scale's rounding leaves over is none. */
const sideIn = (side: number, part: number): number =>
  Math.max(1, Math.ceil(Number((side / part).toFixed(6))));
