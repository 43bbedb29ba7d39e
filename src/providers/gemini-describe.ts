/**
 * What admission needs to know of a Gemini request, or why it cannot be judged. The path names the model and says
 * whether the answer streams. Source of the wire format: https://ai.google.dev/api/generate-content
 */
import { MEMBERS_MAX, problemOfLists } from "./body-limits.ts";
import type { Described, Malformed, RequestTarget } from "./dialect.ts";
import { bothNames, camelCase, listed, memberOf, nameIn } from "./gemini-names.ts";
import { type JsonObject, scanObject } from "./json-members.ts";
import { isRecord, type JsonRecord, recordOf } from "./json-values.ts";
import { type AllowedQuery, problemOfQuery } from "./query.ts";
import {
  fault,
  isAbsentOrCount,
  malformed,
  problemOfNames,
  readObject,
  type Spellings,
  spellings,
  unexpected,
} from "./request-body.ts";

/** `fields` is not among them: it could leave the usage out of the answer. */
export const QUERY: AllowedQuery = { alt: ["sse", "json"], prettyPrint: ["true", "false"] };

export const QUERY_CREDENTIAL = "key";

/** Candidates that one request may ask for: https://cloud.google.com/vertex-ai/generative-ai/docs/model-reference/inference */
const CANDIDATES_MAX = 8;

const JUDGED = bothSpellings([
  "contents",
  "systemInstruction",
  "tools",
  "toolConfig",
  "generationConfig",
  "cachedContent",
  "model",
]);
const JUDGED_CONFIG = bothSpellings([
  "maxOutputTokens",
  "candidateCount",
  "responseSchema",
  "responseJsonSchema",
]);

function bothSpellings(names: readonly string[]): Spellings {
  return spellings(names.flatMap(bothNames));
}

export function describeGemini(text: string, target: RequestTarget): Described {
  const queryProblem = problemOfQuery(target.query, QUERY, QUERY_CREDENTIAL);
  if (queryProblem !== null) return malformed(queryProblem);
  const body = readObject(text, JUDGED);
  if (!body.ok) return body;
  const { members, scanned } = body;
  const model = target.model ?? "";
  const problem =
    problemOfModel(members, model) ??
    (target.operation === "count"
      ? problemOfModel(recordOf(memberOf(members, "generateContentRequest")), model)
      : problemOfMembers(text, members, scanned));
  if (problem !== null) return malformed(problem);
  const config = recordOf(memberOf(members, "generationConfig"));
  const declared = memberOf(config, "maxOutputTokens");
  const candidates = memberOf(config, "candidateCount");
  return {
    ok: true,
    request: {
      target,
      text,
      members,
      scanned,
      model,
      stream: target.operation === "stream",
      declaredOutputTokens: typeof declared === "number" ? declared : null,
      completions: typeof candidates === "number" ? candidates : 1,
    },
  };
}

/** The path names the model. A body that names another might be served by it. */
function problemOfModel({ model }: JsonRecord, inPath: string): Malformed | null {
  if (model === undefined || model === null || model === inPath || model === `models/${inPath}`) return null;
  return unexpected("model", `models/${inPath}, as in the path, or nothing`, model);
}

function problemOfMembers(text: string, members: JsonRecord, scanned: JsonObject): Malformed | null {
  return (
    problemOfTwoNames(scanned, ["generationConfig"], "") ??
    problemOfConfig(text, members, scanned) ??
    problemOfLists(members) ??
    problemOfContents(members["contents"])
  );
}

/** One meaning under two names: nobody knows which is heeded. */
function problemOfTwoNames(
  { members }: JsonObject,
  names: readonly string[],
  path: string,
): Malformed | null {
  for (const name of names) {
    const present = members.filter((member) => camelCase(member.name) === name);
    if (present.length > 1)
      return fault(
        `${path}${name}`,
        `${path}${name}: expected under one name, got ${bothNames(name).join(" and ")}`,
      );
  }
  return null;
}

function problemOfConfig(text: string, members: JsonRecord, scanned: JsonObject): Malformed | null {
  const written = nameIn(scanned, "generationConfig");
  const place = scanned.members.find(({ name }) => name === written);
  if (written === null || place === undefined) return null;
  const config = members[written];
  if (config === null) return null;
  if (!isRecord(config)) return unexpected(written, "an object or null", config);
  const within = scanObject(text, place.valueStart, MEMBERS_MAX);
  const path = `${written}.`;
  const problem =
    problemOfNames(within, JUDGED_CONFIG, path) ??
    problemOfTwoNames(within, ["maxOutputTokens", "candidateCount"], path);
  if (problem !== null) return problem;
  const ceiling = memberOf(config, "maxOutputTokens");
  if (!isAbsentOrCount(ceiling)) return unexpected(`${path}maxOutputTokens`, "a positive integer", ceiling);
  const candidates = memberOf(config, "candidateCount");
  if (!isAbsentOrCount(candidates) || (typeof candidates === "number" && candidates > CANDIDATES_MAX))
    return unexpected(`${path}candidateCount`, `an integer from 1 to ${CANDIDATES_MAX}`, candidates);
  return null;
}

function problemOfContents(contents: unknown): Malformed | null {
  const turns = listed(contents);
  if (turns.length === 0) return unexpected("contents", "a non-empty array", contents);
  for (const [index, turn] of turns.entries()) {
    const path = `contents[${index}]`;
    if (!isRecord(turn)) return unexpected(path, "an object", turn);
    for (const [place, part] of listed(turn["parts"]).entries()) {
      if (!isRecord(part)) return unexpected(`${path}.parts[${place}]`, "an object", part);
    }
  }
  return null;
}
