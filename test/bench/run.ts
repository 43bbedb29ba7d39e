/** `npm run bench -- NAME`: each file beside this one is a benchmark that writes its raw output to results/. */
import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { basename, join } from "node:path";

const own = basename(import.meta.filename);
const names = readdirSync(import.meta.dirname)
  .filter((file) => file.endsWith(".ts") && file !== own)
  .map((file) => file.slice(0, -".ts".length));
const [name = "", ...rest] = process.argv.slice(2);

if (names.includes(name)) {
  const file = join(import.meta.dirname, `${name}.ts`);
  process.exitCode = spawnSync(process.execPath, [file, ...rest], { stdio: "inherit" }).status ?? 1;
} else {
  console.error(`bench: expected one of ${names.join(", ")}, got ${JSON.stringify(name)}`);
  process.exitCode = 1;
}
