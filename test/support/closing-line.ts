/**
 * The last line of a run, for whoever reads only that: `N passed, N failed`, and `, N skipped` if any.
 * It is printed as the process exits, after every other reporter and the runner itself, so that it
 * also knows of errors outside of any test: a run that fails is never "0 failed".
 */
import type { Reporter, SerializedError, TestModule } from "vitest/node";

export interface Tally {
  passed: number;
  failed: number;
  skipped: number;
}

export function tally(modules: readonly TestModule[], unhandledErrors: readonly SerializedError[]): Tally {
  const counts: Tally = { passed: 0, failed: unhandledErrors.length, skipped: 0 };
  for (const module of modules) {
    for (const test of module.children.allTests()) {
      const { state } = test.result();
      // A test that never came to its end did not pass.
      counts[state === "pending" ? "failed" : state] += 1;
    }
    // A file that does not load, or a hook that throws, belongs to no test.
    for (const suite of module.children.allSuites()) counts.failed += suite.errors().length;
    counts.failed += module.errors().length;
  }
  return counts;
}

export function closingLine({ passed, failed, skipped }: Tally, exitCode: number): string {
  const counted = `${passed} passed, ${exitCode === 0 ? failed : Math.max(failed, 1)} failed`;
  return skipped === 0 ? counted : `${counted}, ${skipped} skipped`;
}

export default class ClosingLine implements Reporter {
  #tally: Tally = { passed: 0, failed: 1, skipped: 0 };

  onInit(): void {
    process.once("exit", (exitCode) => {
      if (this.#tally.passed === 0 || this.#tally.failed > 0) process.exitCode = exitCode || 1;
      console.log(closingLine(this.#tally, Number(process.exitCode ?? exitCode)));
    });
  }

  onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly SerializedError[]): void {
    this.#tally = tally(modules, unhandledErrors);
  }
}
