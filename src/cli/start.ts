/** `npm start`: the gateway before a simulated provider, with a demo tenant and its key; nothing to set up. */
import { randomBytes } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { mintVirtualKey } from "../gateway/virtual-key.ts";
import { readOptions, readPort } from "./args.ts";
import { DEMO_POLICY, STATE_HOME } from "./paths.ts";
import { refuseBusyPort } from "./ports.ts";
import { runCommand } from "./problem.ts";
import { readPolicy, startGateway, startSimulator, untilStopped } from "./services.ts";
import type { Running } from "./workerd.ts";

const TENANT = "demo";
/** What the demo policy says of its provider until the simulator's port is known. */
const BASE_URL = "http://127.0.0.1:8788/v1";

await runCommand(async () => {
  const options = readOptions(["port", "state"]);
  const port = readPort("the port", options.port ?? process.env["PORT"] ?? "8787");
  const address = { host: "127.0.0.1", port };
  await refuseBusyPort(address);
  const demoPolicy = readPolicy(DEMO_POLICY).text;
  const home = resolve(options.state ?? STATE_HOME);
  const secret = persistedSecret(home);
  const simulatorKey = randomBytes(24).toString("base64url");
  const simulator = await startSimulator({
    port: 0,
    environment: { ...process.env, SIM_API_KEY: simulatorKey },
  });
  const services: Running[] = [simulator];
  try {
    const gateway = await startGateway({
      ...address,
      policy: demoPolicy.replace(BASE_URL, `${simulator.url}/v1`),
      stateDir: join(home, "state"),
      environment: { ...process.env, WEIR_KEY_SECRET: secret, PROVIDER_SIMULATOR_KEY: simulatorKey },
    });
    services.push(gateway);
    const key = await mintVirtualKey({
      user: null,
      secret,
      keyId: "demo",
      tenant: TENANT,
      class: "interactive",
      issuedAtMs: Date.now(),
      expiresAtMs: null,
    });
    console.log(welcome(gateway.url, key));
    console.log("ready");
    return await untilStopped(services);
  } catch (error) {
    await Promise.all(services.map((service) => service.stop()));
    throw error;
  }
});

/** Made once and kept, so that a key stays good over restarts. */
function persistedSecret(home: string): string {
  const file = join(home, "key-secret");
  mkdirSync(home, { recursive: true, mode: 0o700 });
  try {
    writeFileSync(file, randomBytes(32).toString("base64url"), { flag: "wx", mode: 0o600 });
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "EEXIST")) throw error;
  }
  return readFileSync(file, "utf8").trim();
}

function welcome(url: string, key: string): string {
  const body = {
    model: "gpt-4o-mini",
    stream: true,
    messages: [{ role: "user", content: "What is a weir?" }],
  };
  return `weir listens on ${url}, before a simulated provider.

The demo tenant's key:

  ${key}

A streamed answer, with the headers that tell what was held for it:

  curl -i -N ${url}/t/${TENANT}/v1/chat/completions -H "authorization: Bearer ${key}" -H "content-type: application/json" -d '${JSON.stringify(body)}'

What the tenant has left:

  curl ${url}/t/${TENANT}/balance -H "authorization: Bearer ${key}"
`;
}
