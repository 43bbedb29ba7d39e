/** Tries a port before anything is built: the runtime's own complaint would come late and be long. */
import { once } from "node:events";
import { createServer } from "node:net";
import { messageOf, Problem } from "./problem.ts";

export interface Address {
  readonly host: string;
  /** 0: whichever is free. */
  readonly port: number;
}

export async function refuseBusyPort({ host, port }: Address): Promise<void> {
  const probe = createServer();
  try {
    probe.listen(port, host);
    await once(probe, "listening");
  } catch (error) {
    const code = error instanceof Error && "code" in error ? error.code : undefined;
    if (code === "EADDRINUSE") throw new Problem(`port ${port} on ${host} is already in use`);
    throw new Problem(`cannot listen on port ${port} of ${host}: ${messageOf(error)}`);
  }
  probe.close();
  await once(probe, "close");
}
