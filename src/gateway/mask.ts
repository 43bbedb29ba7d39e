/** Some providers quote the key in their error. A body without it passes byte for byte. */
import { joined } from "./body.ts";

/** Holds back at most `bytesMax` bytes to look for the secret; what is beyond flows on unread. */
export async function maskSecret(
  body: ReadableStream<Uint8Array>,
  secret: string,
  bytesMax: number,
): Promise<ReadableStream<Uint8Array> | Uint8Array> {
  const reader = body.getReader();
  const chunks: Uint8Array[] = [];
  let length = 0;
  let ended = false;
  while (!ended && length < bytesMax) {
    const { done, value } = await reader.read().catch(() => ({ done: true as const, value: undefined }));
    if (done) ended = true;
    else {
      chunks.push(value);
      length += value.byteLength;
    }
  }
  const head = masked(joined(chunks, length), secret);
  if (ended) return head;
  return new ReadableStream<Uint8Array>({
    start: (controller) => controller.enqueue(head),
    async pull(controller) {
      const { done, value } = await reader.read();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    cancel: (reason) => reader.cancel(reason),
  });
}

/** Bytes are compared as Latin-1, so that whatever else the body holds survives as it is. */
function masked(bytes: Uint8Array, secret: string): Uint8Array {
  const text = new TextDecoder("latin1").decode(bytes);
  if (secret === "" || !text.includes(secret)) return bytes;
  const utf8 = new TextDecoder().decode(bytes);
  return new TextEncoder().encode(utf8.replaceAll(secret, "[masked]"));
}
