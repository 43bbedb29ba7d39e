/** One chat completion from its request to its entry in the journal. */

import type { Account, Admission } from "./account.ts";
import {
  type ChatRequest,
  completionChoices,
  envelope,
  planChoices,
  plannedTokens,
  readChatRequest,
  reservedTokens,
  usageBody,
} from "./chat.ts";
import { type Performance, playStream } from "./chat-stream.ts";
import { type Directives, readDirectives, splitModel } from "./directives.ts";
import { errorBody, type Refusal, SERVER_ERROR, WRONG_KEY } from "./errors.ts";
import { type AnswerHeaders, faultBeforeOutput, refuse } from "./faults.ts";
import { close, type Journal, type Outcome, type RequestRecord } from "./journal.ts";
import { Outlet } from "./outlet.ts";
import type { Settings } from "./settings.ts";
import { ClientGone, STALL_MS, sleep } from "./time.ts";

/** Nobody is left to read it; the runtime wants some answer all the same. */
const CLIENT_CLOSED = 499;

export interface Provider {
  readonly settings: Settings;
  readonly account: Account;
  readonly journal: Journal;
}

export type Background = Pick<ExecutionContext, "waitUntil">;

/** A request that was admitted and is now being answered. */
interface Turn {
  readonly show: Performance;
  readonly headers: AnswerHeaders;
  readonly client: AbortSignal;
  readonly tape: Uint8Array[];
  /** Writes the last line of the record and corrects the account. */
  end(outcome: Exclude<Outcome, "open">, isBilled: boolean): void;
}

export async function answerChat(provider: Provider, request: Request, ctx: Background): Promise<Response> {
  const { account, journal } = provider;
  const body = await request.text();
  const record = journal.open(request.headers, body, Date.now());
  const turnAway = (refusal: Refusal, tokens: number): Response => {
    close(record, "refused", Date.now());
    return refuse(refusal, answerHeaders(record, account, tokens));
  };

  if (!isWelcome(provider.settings, request)) return turnAway(WRONG_KEY, 0);
  const show = prepare(provider.settings, record, request.headers, body);
  if ("status" in show) return turnAway(show, 0);
  const reserved = reservedTokens(show.request, record.plannedOutputTokens);
  const admission = account.admit(reserved, Date.now());
  if ("status" in admission) return turnAway(admission, reserved);

  const turn: Turn = {
    show,
    headers: answerHeaders(record, account, reserved),
    client: request.signal,
    tape: journal.tape(record.id),
    end: (outcome, isBilled) => end(record, admission, outcome, isBilled),
  };
  try {
    const fault = await faultBeforeOutput(show.directives, turn.headers, turn.client);
    if (fault === undefined) return show.request.stream ? stream(turn, ctx) : await complete(turn, ctx);
    turn.end(fault.outcome, false);
    return fault.response;
  } catch (error) {
    if (!(error instanceof ClientGone)) throw error;
    turn.end("client_closed", false);
    return new Response(null, { status: CLIENT_CLOSED });
  }
}

export function isWelcome({ apiKey }: Settings, request: Request): boolean {
  return apiKey === undefined || request.headers.get("authorization") === `Bearer ${apiKey}`;
}

function prepare(
  settings: Settings,
  record: RequestRecord,
  headers: Headers,
  body: string,
): Performance | Refusal {
  const request: ChatRequest | Refusal = readChatRequest(body);
  if ("status" in request) return request;
  const { model, query } = splitModel(request.model);
  record.model = model;
  record.stream = request.stream;
  record.promptTokens = request.promptTokens;

  const directives: Directives | Refusal = readDirectives(query, headers);
  if ("status" in directives) return directives;
  const choices = planChoices(request, body, directives, settings);
  record.plannedOutputTokens = plannedTokens(choices);
  const pace = {
    firstMs: directives.counts.firstMs ?? settings.firstTokenMs,
    tokenMs: directives.counts.slow ?? settings.tokenMs,
  };
  return { record, request, model, choices, directives, pace };
}

function end(
  record: RequestRecord,
  admission: Admission,
  outcome: Exclude<Outcome, "open">,
  isBilled: boolean,
): void {
  const nowMs = Date.now();
  const { promptTokens, sentTokens } = record;
  if (isBilled) record.usage = { promptTokens, completionTokens: sentTokens };
  admission.settle(isBilled ? promptTokens + sentTokens : 0, nowMs);
  close(record, outcome, nowMs);
}

/** The response goes out at once; the pump outlives it under `waitUntil`. */
function stream(turn: Turn, ctx: Background): Response {
  const { counts } = turn.show.directives;
  const outlet = new Outlet(turn.tape, counts.cut, turn.client);
  ctx.waitUntil(pump(turn, () => playStream(turn.show, outlet)));
  const headers = {
    ...turn.headers,
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
  };
  return new Response(outlet.readable, { headers });
}

async function pump(turn: Turn, play: () => Promise<Exclude<Outcome, "open">>): Promise<void> {
  try {
    turn.end(await play(), true);
  } catch (error) {
    turn.end(error instanceof ClientGone ? "client_closed" : "error", true);
    if (!(error instanceof ClientGone)) throw error;
  }
}

/** The unary answer. The faults of a stream have their counterparts: no tokens are visible before the end. */
async function complete(turn: Turn, ctx: Background): Promise<Response> {
  const { record, choices, directives, pace } = turn.show;
  const { counts } = directives;
  const longest = Math.max(0, ...choices.map((choice) => choice.words.length));
  await sleep(pace.firstMs + longest * pace.tokenMs, turn.client);
  if (counts.stall !== undefined) await sleep(STALL_MS, turn.client);

  const headers = { ...turn.headers, "content-type": "application/json" };
  if (counts.errorAfter !== undefined) {
    turn.end("error", false);
    return new Response(errorBody(SERVER_ERROR), { status: SERVER_ERROR.status, headers });
  }
  const bytes = new TextEncoder().encode(completionBody(turn.show));
  const outlet = new Outlet(turn.tape, counts.cut, turn.client);
  ctx.waitUntil(
    pump(turn, async () => {
      if (counts.drop !== undefined) {
        if (counts.drop > 0) {
          await outlet.send(bytes.slice(0, bytes.length / 2));
          await sleep(Math.max(1, pace.tokenMs), outlet.gone);
        }
        await outlet.drop();
        return "dropped";
      }
      await outlet.send(bytes);
      record.sentTokens = record.plannedOutputTokens;
      await outlet.close();
      return "finished";
    }),
  );
  return new Response(outlet.readable, { headers });
}

function completionBody({ record, model, choices, directives }: Performance): string {
  const usage = { promptTokens: record.promptTokens, completionTokens: record.plannedOutputTokens };
  return JSON.stringify({
    ...envelope(record.id, "chat.completion", model, record.startedAtMs),
    choices: completionChoices(choices),
    ...(directives.flags.has("nousage") ? {} : { usage: usageBody(usage) }),
  });
}

function answerHeaders(record: RequestRecord, account: Account, tokens: number): AnswerHeaders {
  const nowMs = Date.now();
  return {
    ...account.headers(tokens, nowMs),
    "x-request-id": record.id,
    "openai-processing-ms": String(nowMs - record.startedAtMs),
  };
}
