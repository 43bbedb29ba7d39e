/**
 * TypeScript read just closely enough for the house rules: comments blanked, literals blanked or not,
 * imports and functions found. Blanks keep every line and column where it was.
 */

export interface SourceImport {
  readonly specifier: string;
  readonly typesOnly: boolean;
}

export interface FunctionSpan {
  readonly line: number;
  readonly lines: number;
}

interface Scan {
  /** Without comments. */
  readonly uncommented: string;
  /** Without comments and without what stands in strings, templates and regular expressions. */
  readonly code: string;
}

const blank = (text: string): string => text.replaceAll(/[^\n]/g, " ");

/** Comment, string, regular expression or one character, in that order of preference. */
const TOKEN =
  /(?<comment>\/\/[^\n]*|\/\*[\s\S]*?\*\/)|(?<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(?<regex>\/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n[])+\/[a-z]*)|[\s\S]/y;
/** Where an operand may begin, a slash begins a regular expression. */
const OPERAND_NEXT = /(^|[([{,;:=!&|?+*%<>~^-]|\b(return|typeof|case|in|of|await|yield|void))\s*$/;

export function scan(source: string): Scan {
  let uncommented = "";
  let code = "";
  let at = 0;
  // One entry a template that is open: the depth of braces inside its current substitution, or null in its text.
  const templates: (number | null)[] = [];
  const put = (kept: string, blanked = kept) => {
    uncommented += kept;
    code += blanked;
  };
  while (at < source.length) {
    const inside = templates.at(-1);
    if (inside === null) {
      const [text = ""] = /^(?:\\[\s\S]|\$(?!\{)|[^`\\$])*/.exec(source.slice(at)) ?? [];
      put(text, blank(text));
      at += text.length;
      const opens = source.startsWith("${", at);
      put(opens ? "${" : "`");
      if (opens) templates[templates.length - 1] = 0;
      else templates.pop();
      at += opens ? 2 : 1;
      continue;
    }
    TOKEN.lastIndex = at;
    const match = TOKEN.exec(source);
    let [token = ""] = match ?? [];
    const { comment, string, regex } = match?.groups ?? {};
    if (comment !== undefined) put(blank(token));
    else if (string !== undefined) put(token, `"${blank(token.slice(1, -1))}"`);
    else if (regex !== undefined && OPERAND_NEXT.test(code.slice(-40))) put(token, blank(token));
    else {
      token = token.slice(0, 1);
      put(token);
      if (token === "`") templates.push(null);
      if (inside !== undefined && token === "{") templates[templates.length - 1] = inside + 1;
      if (inside !== undefined && token === "}")
        templates[templates.length - 1] = inside === 0 ? null : inside - 1;
    }
    at += token.length;
  }
  return { uncommented, code };
}

const IMPORT =
  /^[ \t]*(?:import|export)\b(?:(?<clause>[^;"'`()=]*?)\bfrom)?\s*["'](?<specifier>[^"']+)["']/gm;
const DYNAMIC = /\bimport\s*\(\s*["'](?<specifier>[^"']+)["']/g;

export function importsOf(source: string): SourceImport[] {
  const { uncommented } = scan(source);
  const found: SourceImport[] = [];
  for (const { groups } of uncommented.matchAll(IMPORT)) {
    found.push({ specifier: groups?.["specifier"] ?? "", typesOnly: isTypesOnly(groups?.["clause"] ?? "") });
  }
  for (const { groups } of uncommented.matchAll(DYNAMIC)) {
    found.push({ specifier: groups?.["specifier"] ?? "", typesOnly: false });
  }
  return found;
}

/** `type { A, B }`, or braces in which every name is a `type`. */
function isTypesOnly(clause: string): boolean {
  if (/^\s*type\b(?!\s*,)/.test(clause)) return true;
  const names = /^\s*\{([^}]*)\}\s*$/
    .exec(clause)?.[1]
    ?.split(",")
    .filter((name) => name.trim() !== "");
  return names !== undefined && names.length > 0 && names.every((name) => /^\s*type\s/.test(name));
}

const NOT_A_FUNCTION = /^\s*(?:\}\s*)?(?:else\b|if\b|for\b|while\b|switch\b|catch\b|class\b|do\b|try\b)/;
const FUNCTION_HEAD = /=>\s*$|\)\s*(?::[^=]*)?$/;

/** Where a brace opens a type or a value that the head goes on after. */
const IN_A_TYPE = /[:|&<,]\s*$/;

/** Every block that follows a parameter list or an arrow. */
export function functionsOf(source: string): FunctionSpan[] {
  const open: { line: number; head: string }[] = [];
  const spans: FunctionSpan[] = [];
  let line = 1;
  let head = "";
  for (const character of scan(source).code) {
    if (character === "\n") line += 1;
    if (character === "{") open.push({ line, head });
    head = "{};".includes(character) ? "" : head + character;
    const block = character === "}" ? open.pop() : undefined;
    if (block === undefined) continue;
    if (IN_A_TYPE.test(block.head)) {
      head = `${block.head}_`;
    } else if (FUNCTION_HEAD.test(block.head) && !NOT_A_FUNCTION.test(block.head)) {
      spans.push({ line: block.line, lines: line - block.line + 1 });
    }
  }
  return spans;
}
