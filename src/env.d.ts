/** The worker's bindings. `serve` and wrangler.toml bring the same ones. */
declare namespace Cloudflare {
  interface GlobalProps {
    mainModule: typeof import("./worker.ts");
    durableNamespaces: "TenantLedger";
  }

  interface Env {
    TENANT_LEDGER: DurableObjectNamespace<import("../durable-objects/tenant-ledger.ts").TenantLedger>;
    /** The policy document: JSON text, or the parsed object where the platform parses it. */
    WEIR_POLICY?: unknown;
    /** Signs the virtual keys. */
    WEIR_KEY_SECRET?: string;
    WEIR_ADMIN_TOKEN?: string;
    /** "1" where the process is local by nature: private provider addresses are allowed. */
    WEIR_LOCAL?: string;
    /** Orders policies between deployments, where the platform's version metadata does not. */
    WEIR_POLICY_EPOCH?: string;
    CF_VERSION_METADATA?: { readonly timestamp: string };
  }
}
