/** Looking into JSON that somebody else wrote: nothing is assumed of its shape. */

export type JsonRecord = Readonly<Record<string, unknown>>;

export function isRecord(value: unknown): value is JsonRecord {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The value as an object, or an empty one, for reading members that may not be there. */
export function recordOf(value: unknown): JsonRecord {
  return isRecord(value) ? value : {};
}

export function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

/** `undefined` where the text is not JSON, which no JSON text reads as. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const SHOWN_UNITS_MAX = 40;

/** What came, for an error message: short, and never an object's content. */
export function shown(value: unknown): string {
  if (value === undefined) return "nothing";
  if (Array.isArray(value)) return value.length === 0 ? "an empty array" : "an array";
  if (isRecord(value)) return "an object";
  // A literal that overflowed: JSON would show it as null, which is not what came.
  if (value === Infinity || value === -Infinity) return "a number too large";
  if (typeof value !== "string") return JSON.stringify(value) ?? "nothing";
  return JSON.stringify(value.length > SHOWN_UNITS_MAX ? `${value.slice(0, SHOWN_UNITS_MAX)}…` : value);
}
