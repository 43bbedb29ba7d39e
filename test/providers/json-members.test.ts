/** Members by place, and edits that leave every other byte alone. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { scanObject, setMember, splice } from "../../src/providers/json-members.ts";

/** One seed, so that a failure comes again. */
fc.configureGlobal({ seed: 20_260_101 });

function set(text: string, name: string, json: string): string {
  return splice(text, setMember(scanObject(text), name, json));
}

describe("scanObject", () => {
  it("finds the members that JSON.parse finds, by their places", () => {
    const indents = fc.constantFrom<(string | number)[]>(0, 2, "\t");
    fc.assert(
      fc.property(fc.dictionary(fc.string({ unit: "binary" }), fc.jsonValue()), indents, (value, indent) => {
        const text = ` ${JSON.stringify(value, null, indent)}\n`;
        const scanned = scanObject(text);
        const read = scanned.members.map(({ name, valueStart, valueEnd }) => [
          name,
          JSON.parse(text.slice(valueStart, valueEnd)),
        ]);
        expect(Object.fromEntries(read)).toEqual(JSON.parse(text));
        expect(text[scanned.open]).toBe("{");
        expect(text[scanned.close]).toBe("}");
        expect(scanned.duplicates).toEqual([]);
      }),
    );
  });

  it("SEC-09: sees a name given twice, even when one of them is escaped", () => {
    const text = '{"model":"cheap","max_tokens":1,"model":"dear","max\\u005ftokens":8000,"a":{"b":1,"b":2}}';
    expect(scanObject(text).duplicates).toEqual(["model", "max_tokens"]);
  });

  it("is not led astray by brackets, quotes and backslashes inside strings", () => {
    const text = '{"a":"}]\\"{\\\\","b":["\\\\\\"]",{"c":"}"}],"d":-1.5e3}';
    expect(
      scanObject(text).members.map(({ name, valueStart, valueEnd }) => [
        name,
        text.slice(valueStart, valueEnd),
      ]),
    ).toEqual([
      ["a", '"}]\\"{\\\\"'],
      ["b", '["\\\\\\"]",{"c":"}"}]'],
      ["d", "-1.5e3"],
    ]);
  });

  it("reads a million levels of nesting without a stack", () => {
    const scanned = scanObject(`{"a":${"[".repeat(1e6)}${"]".repeat(1e6)},"b":1}`);
    expect(scanned.depth).toBe(1_000_001);
    expect(scanned.members.map(({ name }) => name)).toEqual(["a", "b"]);
  });

  it("counts what a parse would have to make, and keeps no more members than asked", () => {
    const scanned = scanObject('{"a":[1,{"b":"[,{"}],"c":{},"d":1}', 0, 2);
    expect(scanned).toMatchObject({ values: 7, depth: 3, memberCount: 3 });
    expect(scanned.members.map(({ name }) => name)).toEqual(["a", "c"]);
  });

  it("never throws and always ends, whatever the text", () => {
    const pieces = fc.constantFrom("{", "}", "[", "]", ",", ":", '"', "\\", " ", "a", "1", "\n");
    fc.assert(
      fc.property(fc.array(pieces, { maxLength: 40 }), (parts) => {
        expect(scanObject(`{${parts.join("")}`).values).toBeGreaterThan(0);
      }),
    );
  });

  it("takes time in proportion to the text", () => {
    const startedAt = performance.now();
    scanObject(`{"a":"${'\\"'.repeat(500_000)}","b":"${"\\\\".repeat(500_000)}"}`);
    expect(performance.now() - startedAt).toBeLessThan(1000);
  });
});

describe("edits", () => {
  it("replace a value and nothing else", () => {
    expect(set('{ "n" : 1 , "max_tokens" :\t900 , "x":1.0 }', "max_tokens", "5")).toBe(
      '{ "n" : 1 , "max_tokens" :\t5 , "x":1.0 }',
    );
  });

  it("add a member after the last one, or to an empty object", () => {
    expect(set('{"a":1\n}\n', "b", "2")).toBe('{"a":1,"b":2\n}\n');
    expect(set(" { } ", "b", "2")).toBe(' {"b":2 } ');
  });

  it("read as the parsed object with that member set, whatever the object", () => {
    const objects = fc.dictionary(fc.constantFrom("a", "b", "stream", 'q"'), fc.jsonValue());
    fc.assert(
      fc.property(objects, fc.constantFrom("a", "c", 'q"'), (value, name) => {
        const text = JSON.stringify(value, null, 1);
        expect(JSON.parse(set(text, name, "[7]"))).toEqual({ ...JSON.parse(text), [name]: [7] });
      }),
      // JSON has no negative zero, so what is compared has been through it too.
      { examples: [[{ stream: { "": -0 } }, "a"]] },
    );
  });

  it("of which there are none, leave the very same string", () => {
    const text = '{"a":1}';
    expect(splice(text, [])).toBe(text);
  });
});
