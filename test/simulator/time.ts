/** Waiting that ends the moment the client leaves. */

/** Longer than any sane timeout on the other side. */
export const STALL_MS = 600_000;

export class ClientGone extends Error {
  override readonly name = "ClientGone";
}

export function sleep(ms: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.reject(new ClientGone());
  if (ms <= 0) return Promise.resolve();
  return new Promise((resolve, reject) => {
    const leave = (): void => {
      clearTimeout(timer);
      reject(new ClientGone());
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", leave);
      resolve();
    }, ms);
    signal.addEventListener("abort", leave, { once: true });
  });
}
