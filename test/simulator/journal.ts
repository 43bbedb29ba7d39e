/** What the provider saw and did: the witness that tests question afterwards. */

export type Outcome =
  | "open"
  | "finished"
  | "client_closed" // the client left first
  | "dropped" // we broke the connection on purpose
  | "refused" // turned away with a provider's error
  | "error"; // we misbehaved: an error event, a web page, a redirect, silence

export interface Usage {
  readonly promptTokens: number;
  readonly completionTokens: number;
}

export interface RequestRecord {
  readonly id: string;
  model: string | null;
  stream: boolean;
  readonly startedAtMs: number;
  promptTokens: number;
  plannedOutputTokens: number;
  sentTokens: number;
  outcome: Outcome;
  closedAtMs: number | null;
  /** What the provider would bill, whether or not it told the client. */
  usage: Usage | null;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

const KEPT_REQUESTS = 1_000;
const KEPT_STREAMS = 200;
const KEPT_BODY_CHARS = 2_000;
const SECRET_HEADERS: ReadonlySet<string> = new Set([
  "authorization",
  "api-key",
  "x-api-key",
  "x-goog-api-key",
]);

export class Journal {
  readonly #records = new Map<string, RequestRecord>();
  readonly #tapes = new Map<string, Uint8Array[]>();
  #opened = 0;

  open(headers: Headers, body: string, nowMs: number): RequestRecord {
    this.#opened += 1;
    const record: RequestRecord = {
      id: `req_sim_${String(this.#opened).padStart(6, "0")}`,
      model: null,
      stream: false,
      startedAtMs: nowMs,
      promptTokens: 0,
      plannedOutputTokens: 0,
      sentTokens: 0,
      outcome: "open",
      closedAtMs: null,
      usage: null,
      headers: maskedHeaders(headers),
      body: body.slice(0, KEPT_BODY_CHARS),
    };
    remember(this.#records, record.id, record, KEPT_REQUESTS);
    return record;
  }

  /** The list that receives every piece of the answer body that left us. */
  tape(id: string): Uint8Array[] {
    const tape: Uint8Array[] = [];
    remember(this.#tapes, id, tape, KEPT_STREAMS);
    return tape;
  }

  records(): RequestRecord[] {
    return [...this.#records.values()];
  }

  sent(id: string): Blob | undefined {
    const tape = this.#tapes.get(id);
    return tape === undefined ? undefined : new Blob(tape);
  }

  /** Numbering goes on, so that a request from before the reset keeps an id of its own. */
  reset(): void {
    this.#records.clear();
    this.#tapes.clear();
  }
}

/** The first outcome stands: a client that leaves after the end did not leave early. */
export function close(record: RequestRecord, outcome: Exclude<Outcome, "open">, nowMs: number): void {
  if (record.outcome !== "open") return;
  record.outcome = outcome;
  record.closedAtMs = nowMs;
}

function remember<V>(map: Map<string, V>, id: string, value: V, kept: number): void {
  map.set(id, value);
  if (map.size <= kept) return;
  const [oldest] = map.keys();
  if (oldest !== undefined) map.delete(oldest);
}

function maskedHeaders(headers: Headers): Record<string, string> {
  const seen: Record<string, string> = {};
  for (const [name, value] of headers) {
    seen[name] = SECRET_HEADERS.has(name) ? `***${value.slice(-4)}` : value;
  }
  return seen;
}
