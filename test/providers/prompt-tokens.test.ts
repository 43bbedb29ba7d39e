/**
 * Counts of rendered prompts against what providers reported for them, as published. Where ours differs, the fixture
 * says by how much; nowhere else may it.
 */
import { describe, expect, it } from "vitest";
import { loadCounter } from "../../src/tokens/encodings.ts";
import { imagePricingOf } from "../../src/tokens/media/image-price.ts";
import { endpointOf } from "../support/endpoints.ts";
import { png } from "../tokens/media/images.ts";
import fixtures from "./fixtures/prompt-tokens.json" with { type: "json" };

interface Recorded {
  readonly source: string;
  readonly path: string;
  readonly body: { readonly model?: string };
  /** As the provider reported them. */
  readonly promptTokens: number;
  /** Ours less theirs. */
  readonly differs?: number;
  /** Width and height of the picture that stands where the body says IMAGE. */
  readonly image?: readonly number[];
}

const CASES: readonly Recorded[] = fixtures.cases;

/** The models that came before GPT-4o read the older vocabulary. */
const OLDER = /^gpt-(3\.5|4$|4-)/;

async function counted({ path, body, image }: Recorded): Promise<number> {
  const { dialect, target } = endpointOf(path);
  const [width = 0, height = 0] = image ?? [];
  const picture = `data:image/png;base64,${Buffer.from(png(width, height)).toString("base64")}`;
  const described = dialect.describe(
    JSON.stringify(body).replace('"IMAGE"', JSON.stringify(picture)),
    target,
  );
  if (!described.ok) throw new Error(described.malformed.message);
  const { request } = described;
  const counter = await loadCounter(OLDER.test(request.model) ? "cl100k_base" : "o200k_base", "policy");
  const terms = { images: imagePricingOf(request.model), unseenInputTokens: 0 };
  return dialect.countInput(request, counter, terms).inputTokens;
}

describe.each(Object.keys(fixtures.sources))("prompts of %s", (source) => {
  const cases = CASES.filter((recorded) => recorded.source === source);

  it.each(cases)("$path $body.model: $promptTokens", async (recorded) => {
    expect((await counted(recorded)) - recorded.promptTokens).toBe(recorded.differs ?? 0);
  });
});

it("most recorded prompts are met exactly, and none is missed by more than a twentieth", () => {
  const exact = CASES.filter(({ differs }) => differs === undefined);
  expect(exact.length).toBeGreaterThanOrEqual(0.9 * CASES.length);
  for (const { differs = 0, promptTokens } of CASES)
    expect(Math.abs(differs)).toBeLessThanOrEqual(Math.max(3, promptTokens / 20));
});
