/** Waiting for what must come to pass: asks again until it holds, and fails with the last answer. */
import { vi } from "vitest";

export function soon<T>(holds: () => T | Promise<T>, withinMs = 1_000): Promise<T> {
  return vi.waitFor(holds, { timeout: withinMs, interval: 10 });
}
