/**
 * A provider that speaks the OpenAI Chat Completions dialect, bills an account, remembers what it
 * saw, and misbehaves on request. Its state lives in memory: one simulator is one provider.
 */

import { Account } from "./account.ts";
import { envelope, usageBody } from "./chat.ts";
import { answerChat, type Background, isWelcome, type Provider } from "./chat-answer.ts";
import { invalidRequest, WRONG_KEY } from "./errors.ts";
import { refuse } from "./faults.ts";
import { Journal } from "./journal.ts";
import { type Env, readSettings } from "./settings.ts";

export interface Simulator {
  fetch(request: Request, env: Env, ctx: Background): Promise<Response>;
}

const MODELS = ["gpt-4o", "gpt-4o-mini", "gpt-4.1", "gpt-4.1-mini", "gpt-5", "gpt-5-mini", "o4-mini"];
const MODELS_CREATED_S = 1_735_689_600;

export function createSimulator(): Simulator {
  let provider: Provider | undefined;
  const route = (request: Request, env: Env, ctx: Background): Response | Promise<Response> => {
    provider ??= openProvider(env);
    const { pathname } = new URL(request.url);
    switch (`${request.method} ${pathname}`) {
      case "POST /v1/chat/completions":
        return answerChat(provider, request, ctx);
      case "GET /v1/models":
        return isWelcome(provider.settings, request) ? Response.json(modelList()) : refuse(WRONG_KEY, {});
      case "GET /sim/requests":
        return Response.json(provider.journal.records());
      case "POST /sim/reset":
        provider.journal.reset();
        provider = { ...provider, account: new Account(provider.settings) };
        return new Response(null, { status: 204 });
      case "GET /healthz":
        return new Response("ok\n");
      default:
        if (request.method === "GET") {
          const stored = isWelcome(provider.settings, request) ? storedCompletion(provider, pathname) : null;
          if (stored !== null) return stored;
        }
        return sentBytes(provider, request.method, pathname);
    }
  };
  return {
    async fetch(request, env, ctx) {
      const answer = Promise.resolve(route(request, env, ctx));
      // The runtime forgets a handler whose client left; this one has yet to write down that it did.
      ctx.waitUntil(answer.catch(() => {}));
      return answer;
    },
  };
}

function openProvider(env: Env): Provider {
  const settings = readSettings(env);
  return { settings, account: new Account(settings), journal: new Journal() };
}

/** A completion that was asked to be kept, once it is over: as the API gives it back. */
function storedCompletion({ journal }: Provider, pathname: string): Response | null {
  const number = /^\/v1\/chat\/completions\/chatcmpl-sim(\d+)$/.exec(pathname)?.[1];
  const record = journal.records().find(({ id }) => id === `req_sim_${number}`);
  if (record?.usage == null || !/"store"\s*:\s*true/.test(record.body)) return null;
  const choice = { index: 0, message: { role: "assistant", content: "" }, finish_reason: "stop" };
  return Response.json({
    ...envelope(record.id, "chat.completion", record.model ?? "", record.startedAtMs),
    choices: [choice],
    usage: usageBody(record.usage),
  });
}

function sentBytes({ journal }: Provider, method: string, pathname: string): Response {
  const id = method === "GET" ? /^\/sim\/stream\/([^/]+)$/.exec(pathname)?.[1] : undefined;
  const sent = id === undefined ? undefined : journal.sent(id);
  if (sent === undefined)
    return refuse({ ...invalidRequest(`Invalid URL (${method} ${pathname})`), status: 404 }, {});
  return new Response(sent, { headers: { "content-type": "application/octet-stream" } });
}

function modelList() {
  const data = MODELS.map((id) => ({
    id,
    object: "model",
    created: MODELS_CREATED_S,
    owned_by: "simulator",
  }));
  return { object: "list", data };
}
