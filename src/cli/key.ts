/** `npm run key -- --tenant T [--class batch] [--user U] [--expires 30d]`: mints a virtual key, alone on the last line. */
import { randomUUID } from "node:crypto";
import { isKeyClass, isTenantName, isUserName, mintVirtualKey } from "../gateway/virtual-key.ts";
import { readDurationMs, readOptions, requiredOption } from "./args.ts";
import { Problem, runCommand } from "./problem.ts";
import { keySecret } from "./services.ts";

await runCommand(async () => {
  const options = readOptions(["tenant", "class", "user", "expires"]);
  const tenant = requiredOption("tenant", options.tenant);
  if (!isTenantName(tenant)) {
    throw new Problem(`--tenant must be 1 to 63 of a-z, 0-9, _ and -, not "${tenant}"`);
  }
  const keyClass = options.class ?? "interactive";
  if (!isKeyClass(keyClass)) throw new Problem(`--class must be interactive or batch, not "${keyClass}"`);
  const { user } = options;
  if (user !== undefined && !isUserName(user))
    throw new Problem("--user must be 1 to 128 printable characters without spaces");
  const issuedAtMs = Date.now();
  const lifeMs = options.expires === undefined ? null : readDurationMs("--expires", options.expires);
  const key = await mintVirtualKey({
    secret: keySecret(process.env),
    keyId: randomUUID(),
    tenant,
    class: keyClass,
    user: user ?? null,
    issuedAtMs,
    expiresAtMs: lifeMs === null ? null : issuedAtMs + lifeMs,
  });
  console.log(key);
  return 0;
});
