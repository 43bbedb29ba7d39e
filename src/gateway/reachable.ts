/**
 * Whether a provider takes connections at all. The local runtime says the same words of a connection that
 * was refused and of one that was lost, and only the first proves that nothing was sent.
 *
 * For local use only: deployed, the platform answers for an origin that is down with a 52x status, and
 * it refuses sockets to its own network, where many providers are.
 */
import { connect } from "cloudflare:sockets";

const PROBE_MAX_MS = 2_000;

export async function takesConnections(baseUrl: string): Promise<boolean> {
  const { hostname, port, protocol } = new URL(baseUrl);
  const socket = connect({ hostname, port: Number(port || (protocol === "https:" ? 443 : 80)) });
  // What is never opened is never closed either.
  socket.closed.catch(() => {});
  let timer: ReturnType<typeof setTimeout> | null = null;
  const undecided = new Promise<boolean>((resolve) => {
    timer = setTimeout(() => resolve(true), PROBE_MAX_MS);
  });
  const opened = socket.opened.then(
    () => true,
    () => false,
  );
  const answer = await Promise.race([opened, undecided]);
  clearTimeout(timer);
  await socket.close().catch(() => {});
  return answer;
}
