/** A request's input, counted component by component. */
import type { CountBudget, Counter } from "./counter.ts";
import { audioLengthOf } from "./media/audio-length.ts";
import { type ImagePricing, imagePrice } from "./media/image-price.ts";
import { imageSizeOf } from "./media/image-size.ts";

/** What a prompt is made of, as far as its size is told apart. */
export type Component = "system" | "messages" | "tools" | "outputSchema" | "images" | "audio" | "files";

/** Input tokens of the rendered payload by component; `bounded` when any part is an upper bound, not a count. */
export interface InputCount {
  readonly inputTokens: number;
  readonly components: Readonly<Record<Component, number>>;
  readonly bounded: boolean;
}

/** Adds up one request. All its texts share one budget of work. */
export class Tally {
  readonly #counter: Counter;
  readonly #images: ImagePricing;
  readonly #budget: CountBudget = { spentSteps: 0 };
  readonly #components: Record<Component, number> = {
    system: 0,
    messages: 0,
    tools: 0,
    outputSchema: 0,
    images: 0,
    audio: 0,
    files: 0,
  };
  #bounded = false;

  constructor(counter: Counter, images: ImagePricing) {
    this.#counter = counter;
    this.#images = images;
  }

  add(component: Component, tokens: number): void {
    this.#components[component] += tokens;
  }

  /** Adds what is no count but more than it can be. */
  bound(component: Component, tokens: number): void {
    this.add(component, tokens);
    this.#bounded = true;
  }

  text(component: Component, text: string): void {
    const { tokens, bounded } = this.#counter.count(text, this.#budget);
    this.add(component, tokens);
    this.#bounded ||= bounded;
  }

  /** `encoded` is the image itself in base64, with or without a data URI's head; null where it is only named. */
  image(detail: unknown, encoded: string | null): void {
    const size = encoded === null ? null : imageSizeOf(encoded);
    const { tokens, bounded } = imagePrice(this.#images, detail, size);
    this.add("images", tokens);
    this.#bounded ||= bounded;
  }

  /** A sound in base64, as long as its header says or as so many bytes can be. `kind` is its format or MIME type. */
  audio(tokensPerSecond: number, encoded: string, kind: string): void {
    const { seconds, bounded } = audioLengthOf(encoded, kind);
    this.add("audio", Math.ceil(seconds * tokensPerSecond));
    this.#bounded ||= bounded;
  }

  result(): InputCount {
    const components = { ...this.#components };
    const inputTokens = Object.values(components).reduce((sum, tokens) => sum + tokens, 0);
    return { inputTokens, components, bounded: this.#bounded };
  }
}
