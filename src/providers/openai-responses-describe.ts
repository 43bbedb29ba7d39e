/** What admission needs to know of a Responses request, or why it cannot be judged. */
import { problemOfLists } from "./body-limits.ts";
import type { Described, Malformed, RequestTarget } from "./dialect.ts";
import { isRecord, type JsonRecord } from "./json-values.ts";
import { isAbsentOrCount, malformed, readObject, spellings, unexpected } from "./request-body.ts";

/** Caps all output of an answer, reasoning included. */
export const CEILING = "max_output_tokens";

const FLAGS = ["stream", "background", "store"] as const;

/** Members that are read here or that count. */
const JUDGED = spellings([
  CEILING,
  ...FLAGS,
  "model",
  "input",
  "instructions",
  "tools",
  "tool_choice",
  "text",
  "previous_response_id",
  "conversation",
  "prompt",
]);

export function describeResponses(text: string, target: RequestTarget): Described {
  const body = readObject(text, JUDGED);
  if (!body.ok) return body;
  const { members, scanned } = body;
  const problem = problemOfMembers(members);
  if (problem !== null) return malformed(problem);
  const { model, stream, [CEILING]: ceiling } = members;
  return {
    ok: true,
    request: {
      target,
      text,
      members,
      scanned,
      model: String(model),
      stream: stream === true,
      declaredOutputTokens: typeof ceiling === "number" ? ceiling : null,
      completions: 1,
    },
  };
}

function problemOfMembers(members: JsonRecord): Malformed | null {
  const { model, input } = members;
  // A stored prompt may name the model by itself, but whose limits apply must be known before it is asked.
  if (typeof model !== "string" || model.trim() === "")
    return unexpected("model", "a non-empty string", model);
  for (const name of FLAGS) {
    const flag = members[name];
    if (flag !== undefined && flag !== null && typeof flag !== "boolean")
      return unexpected(name, "true, false or null", flag);
  }
  if (!isAbsentOrCount(members[CEILING])) return unexpected(CEILING, "a positive integer", members[CEILING]);
  return problemOfLists(members) ?? problemOfInput(input);
}

/** Absent where a conversation or a stored prompt says it all. */
function problemOfInput(input: unknown): Malformed | null {
  if (input === undefined || input === null || typeof input === "string") return null;
  if (!Array.isArray(input)) return unexpected("input", "a string or an array of items", input);
  const index = input.findIndex((item) => !isRecord(item));
  return index < 0 ? null : unexpected(`input[${index}]`, "an object", input[index]);
}
