/** One worker in one file, as the deployment would bundle it, and the files that it imports as bytes. */
import { basename, resolve } from "node:path";
import { build, type Plugin, stop } from "esbuild";
import { Problem } from "./problem.ts";

/** Module names to files: modules that are bytes and lie beside the bundle. */
export type DataModules = ReadonlyMap<string, string>;

export async function bundleWorker({
  entry,
  outfile,
}: {
  entry: string;
  outfile: string;
}): Promise<DataModules> {
  const data = new Map<string, string>();
  try {
    await build({
      entryPoints: [entry],
      outfile,
      bundle: true,
      format: "esm",
      target: "es2024",
      platform: "neutral",
      mainFields: ["module", "main"],
      conditions: ["workerd", "worker", "browser"],
      external: ["cloudflare:*"],
      plugins: [bytesBeside(data)],
      logLevel: "silent",
    });
    return data;
  } catch (error) {
    throw new Problem(...bundlingErrors(error));
  } finally {
    // It is a process of its own, which would stay for as long as we do.
    await stop();
  }
}

/** What wrangler does with `.bin`, too: the import stays, and names a module of its own. */
function bytesBeside(data: Map<string, string>): Plugin {
  return {
    name: "bytes-beside",
    setup: (bundling) => {
      bundling.onResolve({ filter: /\.bin$/ }, ({ path, resolveDir }) => {
        const name = basename(path);
        data.set(name, resolve(resolveDir, path));
        return { path: `./${name}`, external: true };
      });
    },
  };
}

interface BundlingError {
  readonly text: string;
  readonly location: { readonly file: string; readonly line: number } | null;
}

function bundlingErrors(error: unknown): string[] {
  if (!(error instanceof Error) || !("errors" in error)) throw error;
  return (error.errors as BundlingError[]).map(({ text, location }) =>
    location === null ? text : `${location.file}:${location.line}: ${text}`,
  );
}
