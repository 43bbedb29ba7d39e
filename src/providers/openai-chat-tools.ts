/** What a chat request offers and demands beside its messages: tools, and the schema of the answer. */
import type { Tally } from "../tokens/tally.ts";
import { isRecord, type JsonRecord, listOf, recordOf } from "./json-values.ts";
import { functionText } from "./openai-function-text.ts";
import { LABEL_UNITS_MAX } from "./prompt-text.ts";

/** Around all functions, fewer where the system's message is there already for them to stand in. */
const FUNCTIONS_TOKENS = 9;
const SHARED_SYSTEM_TOKENS = 4;

/** To demand a function, beside its name; to forbid them. */
const DEMAND_TOKENS = 4;
const FORBID_TOKENS = 1;

/** Around a tool that is no function, whose rendering nobody has told: its JSON plus this is above it. */
const OTHER_TOOL_TOKENS = 8;

/** What of a request's tools bears on how its messages are rendered, and on whose models read it. */
export interface ToolsContext {
  readonly sharesSystem: boolean;
  /** Of a model whose rendering was recorded: short members that it leaves out do not count. */
  readonly recorded: boolean;
}

export function offeredTools({ tools, functions }: JsonRecord): readonly unknown[] {
  return [...listOf(tools), ...listOf(functions)];
}

export function countTools(members: JsonRecord, tally: Tally, context: ToolsContext): void {
  const functions: JsonRecord[] = [];
  const unshown: string[] = [];
  for (const tool of offeredTools(members)) {
    const split = functionOf(tool);
    if (split === null) {
      tally.add("tools", OTHER_TOOL_TOKENS);
      tally.text("tools", JSON.stringify(tool));
    } else {
      functions.push(split.definition);
      for (const [name, value] of Object.entries(split.beside))
        unshown.push(`${name}: ${JSON.stringify(value)}`);
    }
  }
  if (functions.length > 0) countFunctions(functions, unshown, tally, context);
  for (const choice of [members["tool_choice"], members["function_call"]]) countChoice(choice, tally);
}

/** A tool's function and whatever stands beside it, or a legacy function; null for another kind of tool. */
function functionOf(tool: unknown): { readonly definition: JsonRecord; readonly beside: JsonRecord } | null {
  if (!isRecord(tool)) return null;
  const { type, function: inner, ...beside } = tool;
  if (type === "function" && isRecord(inner)) return { definition: inner, beside };
  return type === undefined && inner === undefined ? { definition: tool, beside: {} } : null;
}

function countFunctions(
  functions: readonly JsonRecord[],
  beside: readonly string[],
  tally: Tally,
  context: ToolsContext,
): void {
  const { text, unshown } = functionText(functions);
  tally.add("tools", FUNCTIONS_TOKENS - (context.sharesSystem ? SHARED_SYSTEM_TOKENS : 0));
  tally.text("tools", text);
  for (const member of [...beside, ...unshown]) {
    if (!context.recorded || member.length > LABEL_UNITS_MAX) tally.text("tools", member);
  }
}

/** "auto" adds nothing. */
function countChoice(choice: unknown, tally: Tally): void {
  if (choice === "none") tally.add("tools", FORBID_TOKENS);
  if (!isRecord(choice)) return;
  const { name } = recordOf(choice["function"] ?? choice);
  const named = typeof name === "string" && JSON.stringify(choice).length <= name.length + LABEL_UNITS_MAX;
  tally.add("tools", DEMAND_TOKENS);
  tally.text("tools", named ? name : JSON.stringify(choice));
}

export function countOutputSchema({ response_format: format }: JsonRecord, tally: Tally): void {
  if (!isRecord(format) || format["type"] === "text" || format["type"] === "json_object") return;
  tally.text("outputSchema", JSON.stringify(format["json_schema"] ?? format));
}
