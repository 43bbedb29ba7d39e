/**
 * What went wrong, for whoever typed the command: one clear line each on standard error, exit code 1,
 * never a stack trace.
 */

export class Problem extends Error {
  readonly lines: readonly string[];

  constructor(...lines: readonly string[]) {
    super(lines.join("\n"));
    this.lines = lines;
  }
}

/** Runs a command to its end; its problems become lines and its number the exit code. */
export async function runCommand(command: () => Promise<number>): Promise<never> {
  let status = 1;
  try {
    status = await command();
  } catch (error) {
    const lines = error instanceof Problem ? error.lines : [messageOf(error)];
    for (const line of lines) console.error(`weir: ${line}`);
  }
  process.exit(status);
}

export function messageOf(error: unknown): string {
  return (error instanceof Error ? error.message : String(error)).replaceAll(/\s*\n\s*/g, " ");
}
