/**
 * Function definitions as OpenAI's models are shown them: not as JSON, but as declarations in TypeScript. The form is
 * not published; others have found it out from the prompt tokens that were billed, and this one counts to the same
 * figures: https://github.com/hmarr/openai-chat-tokens, and OpenAI's own recipe,
 * https://developers.openai.com/cookbook/examples/how_to_count_tokens_with_tiktoken.
 */
import { isRecord, type JsonRecord, listOf, recordOf } from "./json-values.ts";

export interface FunctionText {
  readonly text: string;
  /** Whatever of the definitions is not in it, each member as `name: value`. */
  readonly unshown: readonly string[];
}

/** How far into a schema its descriptions are shown. */
const DESCRIBED_INDENT_MAX = 0;

export function functionText(functions: readonly JsonRecord[]): FunctionText {
  const writer = new Declarations();
  const lines = ["namespace functions {", ""];
  for (const definition of functions) lines.push(...writer.declaration(definition), "");
  lines.push("} // namespace functions");
  return { text: lines.join("\n"), unshown: writer.unshown };
}

/** Every member is either written or left out by name: nothing goes unseen. */
class Declarations {
  readonly unshown: string[] = [];

  declaration({ name, description, parameters, ...rest }: JsonRecord): string[] {
    this.#leaveOut(rest);
    const comment = this.#comment(description, true);
    if (!isRecord(parameters)) {
      this.#leaveOut({ parameters });
      return [...comment, `type ${written(name)} = () => any;`];
    }
    const { type: _, properties, required, ...unwritten } = parameters;
    this.#leaveOut(unwritten);
    const members = this.#members(properties, required, 0);
    return members === ""
      ? [...comment, `type ${written(name)} = () => any;`]
      : [...comment, `type ${written(name)} = (_: {`, members, "}) => any;"];
  }

  /** The properties of an object, one a line. */
  #members(properties: unknown, required: unknown, indent: number): string {
    if (!isRecord(properties)) this.#leaveOut({ properties });
    const needed = new Set(listOf(required));
    const lines: string[] = [];
    for (const [name, value] of Object.entries(recordOf(properties))) {
      if (!isRecord(value)) this.#leaveOut({ [name]: value });
      const { description, ...schema } = recordOf(value);
      lines.push(...this.#comment(description, indent <= DESCRIBED_INDENT_MAX));
      lines.push(`${name}${needed.delete(name) ? "" : "?"}: ${this.#type(schema, indent)},`);
    }
    if (needed.size > 0) this.#leaveOut({ required: [...needed] });
    return lines.map((line) => " ".repeat(indent) + line).join("\n");
  }

  #type(schema: JsonRecord, indent: number): string {
    const { type, anyOf, ...rest } = schema;
    if (Array.isArray(anyOf)) {
      this.#leaveOut({ type, ...rest });
      return anyOf.map((each) => this.#undescribed(each, indent)).join(" | ");
    }
    const { enum: values, ...others } = rest;
    if (Array.isArray(values)) {
      this.#leaveOut(others);
      return values.map((value) => JSON.stringify(value)).join(" | ");
    }
    if (type === "object") {
      const { properties, required, ...unwritten } = rest;
      this.#leaveOut(unwritten);
      return ["{", this.#members(properties, required, indent + 2), "}"].join("\n");
    }
    if (type === "array" && isRecord(rest["items"])) {
      const { items, ...unwritten } = rest;
      this.#leaveOut(unwritten);
      return `${this.#undescribed(items, indent)}[]`;
    }
    this.#leaveOut(rest);
    return this.#simpleType(type);
  }

  #simpleType(type: unknown): string {
    if (Array.isArray(type)) return type.map(written).join(" | ");
    if (type === "array") return "any[]";
    if (type === "integer") return "number";
    return type === undefined ? "any" : written(type);
  }

  /** A type that stands where nothing describes it. */
  #undescribed(value: unknown, indent: number): string {
    if (!isRecord(value)) this.#leaveOut({ type: value });
    const { description, ...schema } = recordOf(value);
    this.#leaveOut({ description });
    return this.#type(schema, indent);
  }

  #comment(description: unknown, shown: boolean): string[] {
    if (shown && typeof description === "string" && description !== "") return [`// ${description}`];
    this.#leaveOut({ description });
    return [];
  }

  #leaveOut(members: JsonRecord): void {
    for (const [name, value] of Object.entries(members))
      if (value !== undefined) this.unshown.push(`${name}: ${JSON.stringify(value)}`);
  }
}

function written(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}
