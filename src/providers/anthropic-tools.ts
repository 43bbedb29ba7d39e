/** What an Anthropic request offers and demands beside its messages: tools, servers of tools, the answer's schema. */
import type { Tally } from "../tokens/tally.ts";
import { isRecord, type JsonRecord, listOf, recordOf } from "./json-values.ts";
import { UNSEEN_TOKENS } from "./opaque.ts";

/**
 * Tokens of the system prompt that tools bring along, as published for each model: with a free choice (`auto`,
 * `none`), and with a forced one (`any`, `tool`). Unknown models are taken for the most expensive.
 * Source: https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview
 */
const TOOL_PROMPT_TOKENS: readonly (readonly [model: RegExp, free: number, forced: number])[] = [
  [/opus-4-8/, 290, 410],
  [/opus-4-7/, 675, 804],
  [/(opus|sonnet)-4-6/, 497, 589],
  [/(opus|sonnet|haiku)-4-5/, 496, 588],
  [/opus-4|sonnet-4/, 313, 315],
  [/sonnet-5/, 354, 474],
  [/3-7-sonnet/, 346, 313],
  [/3-5-haiku/, 264, 355],
  [/3-opus/, 530, 281],
  [/3-haiku/, 264, 340],
];
const MOST_FREE_TOKENS = 675;
const MOST_FORCED_TOKENS = 804;

/** Around one tool's definition, which is rendered in a form of the provider's own. */
const TOOL_TOKENS = 8;

/**
 * A tool that the provider defines comes by its name alone, and adds its definition: 245 tokens for `bash`, 700 for
 * the text editor, 735 for `computer`, with up to 499 of system prompt. The most counts for each.
 * Source: https://platform.claude.com/docs/en/about-claude/pricing
 */
const PROVIDER_TOOL_TOKENS = 735 + 499;

export function countAnthropicTools(members: JsonRecord, model: string, tally: Tally): void {
  const { tools, tool_choice: choice, mcp_servers: servers } = members;
  const offered = listOf(tools);
  if (offered.length > 0) tally.add("tools", toolPromptTokens(model, recordOf(choice)["type"]));
  for (const tool of offered) {
    const { type } = recordOf(tool);
    tally.add("tools", TOOL_TOKENS);
    if (typeof type === "string" && type !== "custom") tally.bound("tools", PROVIDER_TOOL_TOKENS);
    tally.text("tools", JSON.stringify(tool));
  }
  if (isRecord(choice)) tally.text("tools", JSON.stringify(choice));
  // Their tools are fetched by the provider, and nothing of them is seen.
  for (const server of listOf(servers)) {
    tally.bound("tools", UNSEEN_TOKENS);
    tally.text("tools", JSON.stringify(server));
  }
}

function toolPromptTokens(model: string, choice: unknown): number {
  const [, free, forced] = TOOL_PROMPT_TOKENS.find(([known]) => known.test(model)) ?? [
    null,
    MOST_FREE_TOKENS,
    MOST_FORCED_TOKENS,
  ];
  return choice === "any" || choice === "tool" ? forced : free;
}

/** `output_config.format` and, before it, `output_format`. */
export function countAnthropicSchema(members: JsonRecord, tally: Tally): void {
  const { output_config: config, output_format: earlier } = members;
  for (const format of [recordOf(config)["format"], earlier]) {
    if (isRecord(format)) tally.text("outputSchema", JSON.stringify(format["schema"] ?? format));
  }
}
