/** A refusal in OpenAI's words, whichever of its endpoints was asked. */
import type { WireError } from "./dialect.ts";

export function openaiErrorBody({ status, message, param, rate, weir }: WireError): unknown {
  return { error: { message, ...errorKind(status, rate, weir.code), param }, weir };
}

interface ErrorKind {
  readonly type: string;
  readonly code: string | null;
}

/** Types and codes that OpenAI's SDKs and their users already tell apart; our own code is `weir.code`. */
function errorKind(status: number, rate: WireError["rate"], weirCode: string): ErrorKind {
  if (status >= 500) return { type: "server_error", code: null };
  if (status === 409) return { type: "conflict", code: null };
  if (status === 429) {
    if (weirCode === "spend_exhausted") return { type: "insufficient_quota", code: "insufficient_quota" };
    return { type: rate ?? "requests", code: "rate_limit_exceeded" };
  }
  return { type: "invalid_request_error", code: invalidRequestCode(status, weirCode) };
}

function invalidRequestCode(status: number, weirCode: string): string | null {
  if (status === 401) return "invalid_api_key";
  if (status === 403) return "insufficient_permissions";
  if (weirCode === "unknown_model") return "model_not_found";
  if (weirCode === "CONTEXT_BUDGET_EXCEEDED" || weirCode === "request_too_large")
    return "context_length_exceeded";
  return null;
}
