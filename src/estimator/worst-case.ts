/** The declared ceiling is the only bound known before the first token: hold all of it (seed 000). */
export interface OutputBound {
  readonly maxOutputTokens: number;
  readonly outputDeclared: boolean;
  readonly inputTokens: number;
  /** Of the smallest tokens bucket; null when none bounds tokens. */
  readonly capacityTokens: number | null;
}

/**
 * A ceiling that nobody declared is clipped to what the bucket could ever hold: a request without
 * `max_tokens` must not be refused for the model's context window.
 */
export function worstCaseOutputTokens(bound: OutputBound): number {
  if (bound.outputDeclared || bound.capacityTokens === null) return bound.maxOutputTokens;
  return Math.max(1, Math.min(bound.maxOutputTokens, bound.capacityTokens - bound.inputTokens));
}
