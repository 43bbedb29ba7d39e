/** Errors as OpenAI words them: `{error: {message, type, param, code}}`. */

export interface Refusal {
  readonly status: number;
  readonly message: string;
  readonly type: string;
  readonly param: string | null;
  readonly code: string | null;
  readonly retryAfter?: string;
}

export function errorBody(refusal: Refusal): string {
  const { message, type, param, code } = refusal;
  return JSON.stringify({ error: { message, type, param, code } });
}

export function invalidRequest(message: string, param: string | null = null): Refusal {
  return { status: 400, message, type: "invalid_request_error", param, code: null };
}

export const WRONG_KEY: Refusal = {
  status: 401,
  message: "Incorrect API key provided.",
  type: "invalid_request_error",
  param: null,
  code: "invalid_api_key",
};

/** The event OpenAI sends when it fails inside a stream it has already answered with 200. */
export const SERVER_ERROR: Refusal = {
  status: 500,
  message: "The server had an error",
  type: "server_error",
  param: null,
  code: null,
};

const KINDS: Readonly<Record<number, readonly [type: string, code: string | null]>> = {
  401: ["invalid_request_error", "invalid_api_key"],
  403: ["invalid_request_error", "unsupported_country_region_territory"],
  404: ["invalid_request_error", "model_not_found"],
  429: ["requests", "rate_limit_exceeded"],
  529: ["overloaded_error", "overloaded"],
};

/** The error a test asked for by status. */
export function orderedError(status: number, retryAfter: string | undefined): Refusal {
  const [type, code] = KINDS[status] ?? [status < 500 ? "invalid_request_error" : "server_error", null];
  const message = `Simulated provider error ${status}.`;
  const refusal = { status, message, type, param: null, code };
  return retryAfter === undefined ? refusal : { ...refusal, retryAfter };
}
