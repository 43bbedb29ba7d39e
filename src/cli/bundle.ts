/** One worker in one file, as the deployment would bundle it. */
import { build, stop } from "esbuild";
import { Problem } from "./problem.ts";

export async function bundleWorker({ entry, outfile }: { entry: string; outfile: string }): Promise<void> {
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
      logLevel: "silent",
    });
  } catch (error) {
    throw new Problem(...bundlingErrors(error));
  } finally {
    // It is a process of its own, which would stay for as long as we do.
    await stop();
  }
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
