/** A caller who leaves: it owns its socket, so it decides how the connection ends. */
import { once } from "node:events";
import { type ClientRequest, type IncomingMessage, request } from "node:http";
import { chatBody, type Stack, TENANT } from "./stack.ts";

export class Leaver {
  readonly #request: ClientRequest;
  readonly #answer: Promise<IncomingMessage>;
  #text = "";

  private constructor(sent: ClientRequest) {
    this.#request = sent;
    this.#answer = once(sent, "response").then(([answer]) => answer as IncomingMessage);
    // Leaving is what it is for.
    this.#answer.catch(() => {});
    sent.on("error", () => {});
  }

  static async call(stack: Stack, body: object, tenant: string = TENANT): Promise<Leaver> {
    const sent = request(`${stack.baseUrl(tenant)}/chat/completions`, {
      method: "POST",
      agent: false,
      headers: { authorization: `Bearer ${await stack.key(tenant)}`, "content-type": "application/json" },
    });
    sent.end(JSON.stringify(chatBody(body)));
    return new Leaver(sent);
  }

  async status(): Promise<number | undefined> {
    return (await this.#answer).statusCode;
  }

  async headers(): Promise<Headers> {
    const { headers } = await this.#answer;
    return new Headers(
      Object.entries(headers).map(([name, value]): [string, string] => [name, String(value)]),
    );
  }

  /** Reads on until so many chunks with content have come; whatever came is read, so nothing is left behind. */
  contentChunks(count: number): Promise<void> {
    return this.#read((text) => text.split('"delta":{"content":" ').length > count);
  }

  /** Reads on until so much of the body has come. */
  bytes(count: number): Promise<void> {
    return this.#read((text) => text.length >= count);
  }

  async #read(enough: (text: string) => boolean): Promise<void> {
    const answer = await this.#answer;
    answer.on("error", () => {});
    await new Promise<void>((resolve, reject) => {
      answer.on("data", (bytes: Buffer) => {
        this.#text += bytes.toString("latin1");
        if (enough(this.#text)) resolve();
      });
      answer.once("close", () => reject(new Error(`the answer ended too soon: ${this.#text}`)));
    });
  }

  /** RST: the other side is told at once. */
  reset(): void {
    this.#request.socket?.resetAndDestroy();
  }

  /** FIN: the other side finds out when it next writes. */
  close(): void {
    this.#request.socket?.destroy();
  }
}
