/** The composition root: routes, and what answers when nothing else does. */
import { Hono } from "hono";
import type { Context } from "./gateway/call.ts";
import { handle } from "./gateway/handle.ts";
import { refuse } from "./gateway/refusal.ts";
import { newRequestId } from "./gateway/request-id.ts";
import { reservationRoutes } from "./gateway/reservation-routes.ts";
import { isTenantName } from "./gateway/virtual-key.ts";
import { dialectNear, endpointAt } from "./providers/registry.ts";
import { type Settings, settingsOf } from "./settings.ts";

export { TenantLedger } from "../durable-objects/tenant-ledger.ts";
export { AdmissionService } from "./admission-service.ts";
export { OutcomeQuery } from "./outcome-query.ts";

interface HonoEnv {
  Bindings: Cloudflare.Env;
  Variables: { settings: Settings };
}

const app = new Hono<HonoEnv>();

app.get("/healthz", (c) => c.text("ok"));

app.get("/readyz", async (c) => {
  const parsed = await settingsOf(c.env);
  return parsed.ok
    ? c.json({ ready: true, policy: parsed.settings.policyHash })
    : c.json({ ready: false, problems: parsed.problems }, 503);
});

app.use("/t/:tenant/*", async (c, next) => {
  const dialect = dialectNear(pathBelowTenant(c.req.path));
  const objection = pathObjection(c.req.url, c.req.param("tenant"));
  if (objection !== null)
    return refuse(dialect, newRequestId(), { code: "invalid_request", message: objection });
  const parsed = await settingsOf(c.env);
  if (!parsed.ok) {
    console.error(JSON.stringify({ weir: "misconfigured", problems: parsed.problems }));
    return refuse(dialect, newRequestId(), {
      code: "misconfigured",
      message: "The gateway is not configured; its operator finds the problems at /readyz.",
    });
  }
  c.set("settings", parsed.settings);
  return next();
});

app.all("/t/:tenant/*", (c, next) => {
  const { pathname, searchParams } = new URL(c.req.url);
  const endpoint = endpointAt(pathBelowTenant(pathname), searchParams);
  if (endpoint === null) return next();
  if (c.req.method !== "POST") {
    const refusal = { code: "method_not_allowed", message: "Only POST is served here." } as const;
    return refuse(endpoint.dialect, newRequestId(), refusal, new Headers({ allow: "POST" }));
  }
  const context: Context = {
    env: c.env,
    settings: c.get("settings"),
    waitUntil: (work) => c.executionCtx.waitUntil(work),
  };
  return handle(c.req.raw, c.req.param("tenant"), endpoint, context);
});

app.route("/t/:tenant", reservationRoutes);

app.notFound((c) => {
  const message = `${c.req.method} ${c.req.path} is not served. Unknown paths are refused: nothing is proxied unmetered.`;
  return refuse(dialectNear(pathBelowTenant(c.req.path)), newRequestId(), { code: "unknown_path", message });
});

app.onError((error, c) => {
  console.error(
    JSON.stringify({ weir: "internal_error", path: c.req.path, error: error.stack ?? String(error) }),
  );
  return refuse(dialectNear(pathBelowTenant(c.req.path)), newRequestId(), {
    code: "internal_error",
    message: "The gateway failed; nothing more was sent.",
  });
});

function pathBelowTenant(path: string): string {
  return path.replace(/^\/t\/[^/]*/, "");
}

/** A path that two readers could read differently is read by none. */
function pathObjection(url: string, tenant: string): string | null {
  const { pathname } = new URL(url);
  if (/%2f|%5c|\\|\/\/|%00/i.test(pathname)) return "The path has an encoded separator or an empty segment.";
  try {
    decodeURIComponent(pathname);
  } catch {
    return "The path cannot be decoded.";
  }
  return isTenantName(tenant)
    ? null
    : `The tenant's name is not valid: ${JSON.stringify(tenant.slice(0, 80))}.`;
}

export default app;
