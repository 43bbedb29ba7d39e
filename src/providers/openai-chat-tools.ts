/** What a chat request offers and demands beside its messages: tools, and the schema of the answer. */
import type { Tally } from "../tokens/tally.ts";
import { isRecord, type JsonRecord, listOf } from "./json-values.ts";

/** Tools are rendered into the prompt in a form of the provider's own; the JSON of a schema plus this is above it. */
const TOOLS_TOKENS = 12;
const TOOL_TOKENS = 8;

/** Schemas count as JSON with all their members: the model is shown names, types, enums and defaults alike. */
export function countTools(members: JsonRecord, tally: Tally): void {
  const { tools, functions, tool_choice: toolChoice, function_call: functionCall } = members;
  const offered = [...listOf(tools), ...listOf(functions)];
  if (offered.length > 0) tally.add("tools", TOOLS_TOKENS);
  for (const tool of offered) {
    tally.add("tools", TOOL_TOKENS);
    tally.text("tools", JSON.stringify(tool));
  }
  for (const choice of [toolChoice, functionCall])
    if (isRecord(choice)) tally.text("tools", JSON.stringify(choice));
}

export function countOutputSchema({ response_format: format }: JsonRecord, tally: Tally): void {
  if (!isRecord(format) || format["type"] === "text" || format["type"] === "json_object") return;
  tally.text("outputSchema", JSON.stringify(format["json_schema"] ?? format));
}
