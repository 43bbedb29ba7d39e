/** `npm run serve -- --policy FILE --port N --state DIR`: the gateway on plain workerd. */
import { readOptions, readPort, requiredOption } from "./args.ts";
import { runCommand } from "./problem.ts";
import { keySecret, readPolicy, requireProviderSecrets, startGateway, untilStopped } from "./services.ts";

await runCommand(async () => {
  const options = readOptions(["policy", "port", "state", "host"]);
  const port = readPort("--port", options.port ?? "8787");
  const { text, policy } = readPolicy(requiredOption("policy", options.policy));
  const stateDir = requiredOption("state", options.state);
  keySecret(process.env);
  requireProviderSecrets(policy, process.env);
  const host = options.host ?? "127.0.0.1";
  const gateway = await startGateway({ host, port, policy: text, stateDir, environment: process.env });
  console.log(`weir listens on ${gateway.url}`);
  console.log("ready");
  return untilStopped([gateway]);
});
