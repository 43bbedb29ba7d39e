/** Plays a planned completion as server-sent events, one word a chunk, with the faults it was told to have. */

import { type ChatRequest, type Choice, envelope, usageBody } from "./chat.ts";
import type { Directives } from "./directives.ts";
import { errorBody, SERVER_ERROR } from "./errors.ts";
import type { Outcome, RequestRecord } from "./journal.ts";
import type { Outlet } from "./outlet.ts";
import { STALL_MS, sleep } from "./time.ts";

export interface Pace {
  readonly firstMs: number;
  readonly tokenMs: number;
}

export interface Performance {
  readonly record: RequestRecord;
  readonly request: ChatRequest;
  readonly model: string;
  readonly choices: readonly Choice[];
  readonly directives: Directives;
  readonly pace: Pace;
}

type Json = Readonly<Record<string, unknown>>;
type Ending = Exclude<Outcome, "open" | "client_closed" | "refused">;

interface Step {
  readonly choice: Choice;
  /** Absent once the choice is complete: its finish reason is due. */
  readonly word: string | undefined;
}

const PING_EVERY = 5;
const encoder = new TextEncoder();

/** Returns how it ended; rejects with ClientGone if nobody was there to hear it. */
export async function playStream(show: Performance, outlet: Outlet): Promise<Ending> {
  const { record, choices, pace, directives } = show;
  const frames = new Frames(directives.flags.has("crlf"));
  const chunks = new Chunks(show);
  const emit = (payload: string): Promise<void> => outlet.send(frames.event(payload));

  const script = rounds(choices);
  const lastStep = script.at(-1)?.at(-1);

  await sleep(pace.firstMs, outlet.gone);
  for (const choice of choices) await emit(chunks.delta(choice.index, { role: "assistant", content: "" }));
  for (const [round, steps] of script.entries()) {
    if (round > 0 && steps.some((step) => step.word !== undefined)) await sleep(pace.tokenMs, outlet.gone);
    for (const step of steps) {
      const ending = await interruption(show, outlet, emit);
      if (ending !== undefined) return ending;
      if (step.word === undefined) {
        await emit(chunks.finish(step.choice, step === lastStep));
      } else {
        await emit(chunks.delta(step.choice.index, { content: step.word }));
        record.sentTokens += 1;
      }
    }
  }
  const usage = chunks.usage();
  if (usage !== undefined) await emit(usage);
  if (!directives.flags.has("nodone")) await emit("[DONE]");
  await outlet.close();
  return "finished";
}

/** Choices advance side by side: one word of each a round, then each one's finish. */
export function rounds(choices: readonly Choice[]): Step[][] {
  const longest = Math.max(0, ...choices.map((choice) => choice.words.length));
  return Array.from({ length: longest + 1 }, (_, round) =>
    choices
      .filter((choice) => round <= choice.words.length)
      .map((choice) => ({ choice, word: choice.words[round] })),
  );
}

async function interruption(
  show: Performance,
  outlet: Outlet,
  emit: (payload: string) => Promise<void>,
): Promise<Ending | undefined> {
  const { drop, errorAfter, stall } = show.directives.counts;
  const sent = show.record.sentTokens;
  if (sent === drop) {
    await outlet.flush();
    await sleep(Math.max(1, show.pace.tokenMs), outlet.gone); // the bytes leave before the connection does
    await outlet.drop();
    return "dropped";
  }
  if (sent === errorAfter) {
    await emit(errorBody(SERVER_ERROR));
    await outlet.close();
    return "error";
  }
  if (sent === stall) {
    await outlet.flush();
    await silence(outlet, show.directives.counts.heartbeat);
    await outlet.close();
    return "error";
  }
  return undefined;
}

/**
 * A client that leaves with a plain FIN is invisible to workerd until something is written (a reset,
 * or a caller in the same process, is seen at once): heartbeats make every departure visible.
 */
async function silence(outlet: Outlet, heartbeatMs: number | undefined): Promise<void> {
  if (heartbeatMs === undefined) return sleep(STALL_MS, outlet.gone);
  for (let waitedMs = 0; waitedMs < STALL_MS; waitedMs += heartbeatMs) {
    await sleep(heartbeatMs, outlet.gone);
    await outlet.send(encoder.encode(": waiting\n\n"));
    await outlet.flush();
  }
}

/** The JSON of each chunk, with usage wherever this provider is told to put it. */
class Chunks {
  readonly #show: Performance;
  readonly #envelope: Json;
  readonly #reportsUsage: boolean;

  constructor(show: Performance) {
    const { record, model, request, directives } = show;
    this.#show = show;
    this.#envelope = envelope(record.id, "chat.completion.chunk", model, record.startedAtMs);
    this.#reportsUsage = request.includeUsage && !directives.flags.has("nousage");
  }

  delta(index: number, delta: { readonly role?: "assistant"; readonly content: string }): string {
    const words = delta.content === "" ? 0 : 1;
    return this.#chunk({ index, delta, logprobs: null, finish_reason: null }, words, false);
  }

  finish({ index, finishReason }: Choice, isLast: boolean): string {
    return this.#chunk({ index, delta: {}, logprobs: null, finish_reason: finishReason }, 0, isLast);
  }

  /** The chunk of its own that OpenAI sends last; undefined where this provider sends none. */
  usage(): string | undefined {
    if (!this.#reportsUsage || this.#show.directives.flags.has("usageInChoices")) return undefined;
    return JSON.stringify({ ...this.#envelope, choices: [], usage: this.#running(0) });
  }

  #chunk(choice: Json, words: number, isLast: boolean): string {
    return JSON.stringify({ ...this.#envelope, choices: [choice], ...this.#usageMember(words, isLast) });
  }

  #usageMember(words: number, isLast: boolean): Json {
    const { flags } = this.#show.directives;
    if (flags.has("nousage")) return {};
    const isReported = flags.has("continuousUsage") || (flags.has("usageInChoices") && isLast);
    if (isReported) return { usage: this.#running(words) };
    return this.#reportsUsage ? { usage: null } : {};
  }

  #running(words: number): Json {
    const { promptTokens, sentTokens } = this.#show.record;
    return usageBody({ promptTokens, completionTokens: sentTokens + words });
  }
}

/** Server-sent events as bytes: OpenAI's plain form, or every freedom that the standard allows. */
class Frames {
  readonly #isElaborate: boolean;
  #sent = 0;

  constructor(isElaborate: boolean) {
    this.#isElaborate = isElaborate;
  }

  event(payload: string): Uint8Array {
    this.#sent += 1;
    if (!this.#isElaborate) return encoder.encode(`data: ${payload}\n\n`);
    const ping = this.#sent % PING_EVERY === 1 ? ": ping\r\n\r\n" : "";
    return encoder.encode(`${ping}id: ${this.#sent}\r\ndata: ${payload}\r\n\r\n`);
  }
}
