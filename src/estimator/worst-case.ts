/** The declared ceiling is the only bound known before the first token: hold all of it (seed 000). */
export interface OutputBound {
  readonly maxOutputTokens: number;
  readonly outputDeclared: boolean;
  /** The most output that the limits could ever hold beside the input; Infinity when none bounds it. */
  readonly roomTokens: number;
}

/**
 * A ceiling that nobody declared is clipped to what could ever be held: a request without `max_tokens`
 * must not be refused for the model's context window.
 */
export function worstCaseOutputTokens({ maxOutputTokens, outputDeclared, roomTokens }: OutputBound): number {
  return outputDeclared ? maxOutputTokens : Math.max(1, Math.min(maxOutputTokens, roomTokens));
}
