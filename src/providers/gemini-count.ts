/**
 * Input tokens of a Gemini request: contents with every kind of part, the system's instruction, tools, the answer's
 * schema, under either name of each member.
 */
import type { Counter } from "../tokens/counter.ts";
import { type Component, type InputCount, Tally } from "../tokens/tally.ts";
import type { ChatRequest, CountTerms } from "./dialect.ts";
import { countMedium } from "./gemini-media.ts";
import { camelCase, listed, memberOf } from "./gemini-names.ts";
import { isRecord, type JsonRecord, recordOf } from "./json-values.ts";
import { countOpaque, UNSEEN_TOKENS } from "./opaque.ts";
import { countMember, countStrings, LABELS } from "./prompt-text.ts";

/** Framing is not published; the provider's own counts of single turns are the text's and one or two more. */
const TURN_TOKENS = 3;

/** Tools are rendered in a form of the provider's own; the JSON of a declaration plus this is above it. */
const TOOLS_TOKENS = 12;
const TOOL_TOKENS = 8;

const MEDIA: ReadonlySet<string> = new Set(["inlineData", "fileData"]);

/** Calls and code, whose members' names are part of what is read. */
const STRUCTURED: ReadonlySet<string> = new Set(["functionCall", "executableCode", "codeExecutionResult"]);

export function countGeminiInput(
  { members }: ChatRequest,
  counter: Counter,
  { images }: CountTerms,
): InputCount {
  const tally = new Tally(counter, images);
  const resolution = memberOf(recordOf(memberOf(members, "generationConfig")), "mediaResolution");
  for (const [member, value] of Object.entries(members)) {
    switch (camelCase(member)) {
      case "contents":
        for (const turn of listed(value)) countTurn("messages", turn, resolution, tally);
        break;
      case "systemInstruction":
        if (value !== null) countTurn("system", value, resolution, tally);
        break;
      case "tools":
        countTools(listed(value), tally);
        break;
      case "toolConfig":
        if (isRecord(value)) tally.text("tools", JSON.stringify(value));
        break;
      case "generationConfig":
        countSchema(recordOf(value), tally);
        break;
      case "cachedContent":
        // A prompt that was stored before, and is named by its id.
        if (typeof value === "string") tally.bound("files", UNSEEN_TOKENS);
        break;
    }
  }
  return tally.result();
}

function countTurn(component: Component, turn: unknown, resolution: unknown, tally: Tally): void {
  tally.add(component, TURN_TOKENS);
  if (!isRecord(turn)) return countStrings(component, turn, tally);
  for (const entry of Object.entries(turn)) {
    if (entry[0] === "parts")
      for (const part of listed(entry[1])) countPart(component, part, resolution, tally);
    else countMember(component, entry, LABELS, tally);
  }
}

function countPart(component: Component, part: unknown, resolution: unknown, tally: Tally): void {
  if (!isRecord(part)) return countStrings(component, part, tally);
  const own = memberOf(recordOf(memberOf(part, "mediaResolution")), "level");
  for (const entry of Object.entries(part)) {
    const [member, value] = entry;
    const name = camelCase(member);
    if (MEDIA.has(name) && isRecord(value)) countMedium(value, own ?? resolution, tally);
    else if (name === "thoughtSignature" && typeof value === "string") countOpaque(component, value, tally);
    else if (name === "functionResponse" && isRecord(value))
      countResponse(component, value, resolution, tally);
    else if (STRUCTURED.has(name)) tally.text(component, JSON.stringify(value));
    else countMember(component, entry, LABELS, tally);
  }
}

/** A function's result may bring parts of its own, with media in them. */
function countResponse(
  component: Component,
  { parts, ...response }: JsonRecord,
  resolution: unknown,
  tally: Tally,
): void {
  tally.text(component, JSON.stringify(response));
  for (const part of listed(parts)) countPart(component, part, resolution, tally);
}

/** Schemas count as JSON with all their members: the model is shown names, types, enums and defaults alike. */
function countTools(tools: readonly unknown[], tally: Tally): void {
  if (tools.length > 0) tally.add("tools", TOOLS_TOKENS);
  for (const tool of tools) {
    const declarations = listed(memberOf(recordOf(tool), "functionDeclarations"));
    tally.add("tools", TOOL_TOKENS * Math.max(1, declarations.length));
    tally.text("tools", JSON.stringify(tool));
  }
}

function countSchema(config: JsonRecord, tally: Tally): void {
  for (const name of ["responseSchema", "responseJsonSchema"]) {
    const schema = memberOf(config, name);
    if (schema !== undefined && schema !== null) tally.text("outputSchema", JSON.stringify(schema));
  }
}
