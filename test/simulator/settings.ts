/** What the deployment says about the simulated provider: plain text bindings, read once. */

export interface Env {
  /** Absent: any key is welcome. */
  readonly SIM_API_KEY?: string;
  /** Same seed and same body: same answer. */
  readonly SIM_SEED?: string;
  readonly SIM_OUTPUT_MEDIAN?: string;
  readonly SIM_FIRST_TOKEN_MS?: string;
  readonly SIM_TOKEN_MS?: string;
  /** Requests and tokens a minute; absent: unlimited. */
  readonly SIM_RPM?: string;
  readonly SIM_TPM?: string;
}

export interface Settings {
  readonly apiKey: string | undefined;
  readonly seed: string;
  readonly outputMedian: number;
  readonly firstTokenMs: number;
  readonly tokenMs: number;
  readonly requestsPerMinute: number | undefined;
  readonly tokensPerMinute: number | undefined;
}

export function readSettings(env: Env): Settings {
  return {
    apiKey: env.SIM_API_KEY || undefined,
    seed: env.SIM_SEED ?? "weir",
    outputMedian: wholeNumber("SIM_OUTPUT_MEDIAN", env.SIM_OUTPUT_MEDIAN) ?? 60,
    firstTokenMs: wholeNumber("SIM_FIRST_TOKEN_MS", env.SIM_FIRST_TOKEN_MS) ?? 150,
    tokenMs: wholeNumber("SIM_TOKEN_MS", env.SIM_TOKEN_MS) ?? 20,
    requestsPerMinute: wholeNumber("SIM_RPM", env.SIM_RPM),
    tokensPerMinute: wholeNumber("SIM_TPM", env.SIM_TPM),
  };
}

function wholeNumber(name: string, text: string | undefined): number | undefined {
  if (text === undefined || text === "") return undefined;
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < 0) {
    throw new Error(`${name} must be a whole number, not "${text}"`);
  }
  return value;
}
