/**
 * How much a request asks for: its prompt as counted, the longest answer it allows, and the edits that hold it to that.
 */
import type { Counted, Reserve } from "../ledger/commands.ts";
import type { ChatRequest, CountTerms, Dialect, EditedBody } from "../providers/dialect.ts";
import type { Counter } from "../tokens/counter.ts";
import { imagePricingOf } from "../tokens/media/image-price.ts";
import type { InputCount } from "../tokens/tally.ts";
import type { Call } from "./call.ts";

/** The part of a `reserve` that says how much. */
export type Size = Pick<Reserve, "inputTokens" | "counted" | "maxOutputTokens" | "outputDeclared">;

/** A request for a prompt's size spends no tokens, so nothing but a request is asked of the ledger. */
export const NO_SIZE: Size = { inputTokens: 0, counted: null, maxOutputTokens: 0, outputDeclared: true };

/** For a vocabulary that is only assumed. */
const UNKNOWN_MODEL_SAFETY = 1.2;

export function countTermsOf({ chat, target, route }: Call): CountTerms {
  const { model, id, estimated } = target;
  const images = model.imagePricing ?? imagePricingOf(estimated ? chat.model : id);
  return { images, unseenInputTokens: route.unseenInputTokens };
}

/** `asked` is the provider's own count: null where it gave none, undefined where it was not asked. */
export function sizeOf(
  dialect: Dialect,
  call: Call,
  input: InputCount,
  counter: Counter,
  asked?: number | null,
): Size {
  const { target } = call;
  const counted: Counted = {
    basis: basisOf(target.estimated, input.bounded, asked),
    vocabulary: `${counter.encoding}@${counter.digest}`,
    components: Object.fromEntries(Object.entries(input.components).filter(([, tokens]) => tokens > 0)),
    presumedDrift: target.model.presumedDrift ?? dialect.tokensPerCounted,
  };
  const own = target.estimated ? Math.ceil(input.inputTokens * UNKNOWN_MODEL_SAFETY) : input.inputTokens;
  return { inputTokens: asked ?? own, counted, ...outputOf(dialect, call) };
}

function basisOf(estimated: boolean, bounded: boolean, asked: number | null | undefined): Counted["basis"] {
  if (asked !== undefined) return asked === null ? "unanswered" : "asked";
  if (estimated) return "estimated";
  return bounded ? "bounded" : "counted";
}

function outputOf(dialect: Dialect, call: Call): Pick<Size, "maxOutputTokens" | "outputDeclared"> {
  const { chat, route, target } = call;
  const ceiling = outputCeiling(dialect, call);
  const declared = chat.declaredOutputTokens !== null || route.injectMaxOutputTokens;
  // A ceiling that is not written into the request binds nobody: the provider's own is then the worst case.
  const perCompletion = declared
    ? Math.min(chat.declaredOutputTokens ?? ceiling, ceiling)
    : target.model.maxOutputTokens;
  return { maxOutputTokens: perCompletion * chat.completions, outputDeclared: declared };
}

/** What no answer of this call may exceed: the route's ceiling, within the model's, and none that the provider refuses. */
function outputCeiling(dialect: Dialect, { route, target: { model } }: Call): number {
  const ceiling = Math.min(route.maxOutputTokens ?? model.maxOutputTokens, model.maxOutputTokens);
  return Math.max(ceiling, dialect.outputCeilingMin ?? 0);
}

export function editBody(dialect: Dialect, call: Call): EditedBody {
  const { chat, route, target } = call;
  if (isCount(chat)) return { text: chat.text, stripUsage: false };
  return dialect.edit(chat, {
    maxOutputTokens: outputCeiling(dialect, call),
    injectCeilingAs: route.injectMaxOutputTokens ? target.provider.outputCeilingMember : null,
    includeUsage: target.provider.streamOptions,
  });
}

export const isCount = ({ target }: ChatRequest): boolean => target.operation === "count";
