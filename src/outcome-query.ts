/**
 * Asks a provider what became of a call whose end nobody saw. A ledger calls this from its alarm; the asking
 * itself belongs in the worker, for an object has few connections and knows no provider.
 */
import { WorkerEntrypoint } from "cloudflare:workers";
import { readBody } from "./gateway/body.ts";
import { OUTCOME_TIMEOUT_MS, UNARY_READ_BYTES_MAX } from "./gateway/bounds.ts";
import { resolveModel } from "./policy/resolve.ts";
import type { Usage } from "./providers/dialect.ts";
import { DIALECTS } from "./providers/registry.ts";
import { wholeUsage } from "./providers/usage.ts";
import { settingsOf } from "./settings.ts";

export class OutcomeQuery extends WorkerEntrypoint {
  /** Null when the provider does not keep such answers, does not know this one, or has not finished it. */
  async ask(model: string, answerId: string): Promise<Usage | null> {
    const parsed = await settingsOf(this.env);
    if (!parsed.ok) return null;
    const { policy, providerSecrets } = parsed.settings;
    const target = resolveModel(policy, model);
    if (target === null) return null;
    const { provider } = target;
    for (const dialect of DIALECTS[provider.dialect]) {
      const path = dialect.outcomePath(answerId);
      if (path === null) continue;
      const secret = providerSecrets.get(provider.apiKeySecret) ?? "";
      const response = await fetch(`${provider.baseUrl.replace(/\/$/, "")}${path}`, {
        headers: [[...dialect.credential(secret)]],
        redirect: "manual",
        signal: AbortSignal.timeout(OUTCOME_TIMEOUT_MS),
      });
      if (response.status !== 200) {
        await response.body?.cancel();
        continue;
      }
      const body = await readBody(response, UNARY_READ_BYTES_MAX);
      const { usage, finishedChoices } = dialect.readBody(body.ok ? body.text : "");
      const whole = wholeUsage(usage);
      if (whole !== null && finishedChoices > 0) return whole;
    }
    return null;
  }
}
