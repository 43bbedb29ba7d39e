/** What a fresh isolate does to count its first prompt: with our counter, or with js-tiktoken's encoder. */
import { loadEncoding } from "../../../src/tokens/encodings.ts";

const PROMPT = "The gateway holds tokens before the provider sees a request, and settles afterwards. ".repeat(
  12,
);

export default {
  async fetch(request: Request): Promise<Response> {
    switch (new URL(request.url).pathname) {
      case "/weir": {
        const counter = await loadEncoding("o200k_base");
        return new Response(String(counter.count(PROMPT).tokens));
      }
      case "/js-tiktoken": {
        const { Tiktoken } = await import("js-tiktoken/lite");
        const { default: ranks } = await import("js-tiktoken/ranks/o200k_base");
        return new Response(String(new Tiktoken(ranks).encode(PROMPT, [], []).length));
      }
      default:
        return new Response("ok");
    }
  },
};
