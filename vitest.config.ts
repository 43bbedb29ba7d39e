import { cloudflareTest } from "@cloudflare/vitest-plugin";
import { defineConfig, type Plugin } from "vitest/config";

/** Any will do. */
const TEST_SECRETS = {
  WEIR_KEY_SECRET: "test-secret-of-more-than-32-characters",
  WEIR_ADMIN_TOKEN: "test-admin-token",
  PROVIDER_OPENAI_KEY: "test-provider-key",
};

// The plugin looks for what wrangler.toml requires here, before it hears of the bindings below.
Object.assign(process.env, TEST_SECRETS);

/** What wrangler does with `.bin`: its bytes are the module. */
const bytesOfBin: Plugin = {
  name: "bytes-of-bin",
  enforce: "pre",
  load: (id) =>
    id.endsWith(".bin")
      ? `import { readFileSync } from "node:fs";
         const file = readFileSync(${JSON.stringify(id)});
         export default file.buffer.slice(file.byteOffset, file.byteOffset + file.length);`
      : null,
};

export default defineConfig({
  test: {
    // Prints the run's last line; it stands beside the default reporter.
    reporters: ["default", "./test/support/closing-line.ts"],
    projects: [
      {
        // Plain Node: the pure core and everything that needs no runtime of its own.
        plugins: [bytesOfBin],
        test: {
          name: "core",
          include: ["test/**/*.test.ts"],
          exclude: ["test/{worker,durable-objects,e2e}/**"],
        },
      },
      {
        // Inside workerd, with the bindings of wrangler.toml.
        plugins: [
          cloudflareTest({
            wrangler: { configPath: "./wrangler.toml" },
            miniflare: { bindings: TEST_SECRETS },
          }),
        ],
        test: { name: "worker", include: ["test/{worker,durable-objects}/**/*.test.ts"] },
      },
      {
        // Real processes on real ports: after the others and one file at a time.
        test: {
          name: "e2e",
          include: ["test/e2e/**/*.test.ts"],
          fileParallelism: false,
          testTimeout: 60_000,
          hookTimeout: 60_000,
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
});
