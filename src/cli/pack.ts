/** `npm run pack`: makes the vocabularies' files out of js-tiktoken's, which every build of the worker needs. */
import { createHash } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import cl100kBase from "js-tiktoken/ranks/cl100k_base";
import o200kBase from "js-tiktoken/ranks/o200k_base";
import type { EncodingName } from "../tokens/counter.ts";
import { packVocabulary } from "../tokens/pack.ts";
import { tableFile } from "./paths.ts";

const VOCABULARIES: Readonly<Record<EncodingName, { readonly bpe_ranks: string; readonly pat_str: string }>> =
  {
    o200k_base: o200kBase,
    cl100k_base: cl100kBase,
  };

for (const [name, { bpe_ranks: ranks, pat_str: pattern }] of Object.entries(VOCABULARIES)) {
  const path = tableFile(name);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(
    path,
    packVocabulary(ranks, (bytes) => createHash("sha256").update(pattern).update(bytes).digest()),
  );
}
