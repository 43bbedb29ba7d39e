/** What an embeddings request costs to read: its texts and nothing around them. */
import type { CountBudget, Counter } from "../tokens/counter.ts";
import { Tally } from "../tokens/tally.ts";
import type { ChatRequest, CountTerms, Excess, PromptCount } from "./dialect.ts";
import { listOf } from "./json-values.ts";

/**
 * What OpenAI takes in one request, of all its embedding models:
 * https://platform.openai.com/docs/api-reference/embeddings/create#embeddings-create-input
 */
const INPUTS_MAX = 2048;
const TOKENS_PER_INPUT_MAX = 8192;
const TOKENS_PER_REQUEST_MAX = 300_000;

/** Whose models those are; servers that embed with other models have other bounds, and know them better. */
const PUBLISHED_MODELS = /^text-embedding-/;
const PUBLISHED_ENCODING = "cl100k_base";

export function countEmbeddingsInput(
  request: ChatRequest,
  counter: Counter,
  { images }: CountTerms,
): PromptCount {
  const tally = new Tally(counter, images);
  const budget: CountBudget = { spentSteps: 0 };
  const published = PUBLISHED_MODELS.test(request.model.trim());
  const inputs = inputsOf(request.members["input"]);
  let excess: Excess | null = published ? excessOf("input", "inputs", inputs.length, INPUTS_MAX) : null;
  let sure = published;
  for (const [index, input] of inputs.entries()) {
    const { tokens, bounded } =
      typeof input === "string" ? counter.count(input, budget) : { tokens: input.length, bounded: false };
    if (bounded) tally.bound("messages", tokens);
    else tally.add("messages", tokens);
    // What may be more than there is, or was counted in another vocabulary, is no ground to refuse.
    sure &&= !bounded && (typeof input !== "string" || counter.encoding === PUBLISHED_ENCODING);
    if (sure) excess ??= excessOf(`input[${index}]`, "tokens in one input", tokens, TOKENS_PER_INPUT_MAX);
  }
  const count = tally.result();
  if (sure) excess ??= excessOf("input", "tokens", count.inputTokens, TOKENS_PER_REQUEST_MAX);
  return excess === null ? count : { ...count, excess };
}

/** Each input as its text or its token ids, which are as many tokens as they are. */
function inputsOf(input: unknown): readonly (string | readonly unknown[])[] {
  if (typeof input === "string") return [input];
  const list = listOf(input);
  if (typeof list[0] === "number") return [list];
  return list.map((item) => (typeof item === "string" ? item : listOf(item)));
}

function excessOf(param: string, what: string, requested: number, available: number): Excess | null {
  return requested > available ? { param, what, requested, available } : null;
}
