/** `npm run simulator -- --port N`: the simulated provider on its own; `SIM_*` settings from the environment. */
import { readOptions, readPort } from "./args.ts";
import { runCommand } from "./problem.ts";
import { startSimulator, untilStopped } from "./services.ts";

await runCommand(async () => {
  const options = readOptions(["port"]);
  const port = readPort("--port", options.port ?? "8788");
  const simulator = await startSimulator({ port, environment: process.env });
  console.log(`the simulated provider listens on ${simulator.url}/v1`);
  console.log("ready");
  return untilStopped([simulator]);
});
