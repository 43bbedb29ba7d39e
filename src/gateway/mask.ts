/** Some providers quote the key in their error. A body without it passes byte for byte. */
import { joined } from "./body.ts";

export interface MaskBounds {
  readonly bytesMax: number;
  readonly waitMs: number;
}

/** Holds back so many bytes for so long, to look for the secret; what is beyond flows on unread. */
export async function maskSecret(
  body: ReadableStream<Uint8Array>,
  secret: string,
  { bytesMax, waitMs }: MaskBounds,
): Promise<ReadableStream<Uint8Array> | Uint8Array> {
  const reader = body.getReader();
  let timer: ReturnType<typeof setTimeout> | null = null;
  const late = new Promise<"late">((resolve) => {
    timer = setTimeout(() => resolve("late"), waitMs);
  });
  const chunks: Uint8Array[] = [];
  let length = 0;
  // A read that was late is not lost: the rest of the body begins with it.
  let pending: ReturnType<typeof readOn> | null = null;
  const readOn = () => reader.read().catch(() => ({ done: true as const, value: undefined }));
  while (length < bytesMax) {
    pending ??= readOn();
    const read = await Promise.race([pending, late]);
    if (read === "late") break;
    pending = null;
    if (read.done) {
      clearTimeout(timer);
      return masked(joined(chunks, length), secret);
    }
    chunks.push(read.value);
    length += read.value.byteLength;
  }
  clearTimeout(timer);
  const head = masked(joined(chunks, length), secret);
  return new ReadableStream<Uint8Array>({
    start: (controller) => (head.byteLength > 0 ? controller.enqueue(head) : undefined),
    async pull(controller) {
      const { done, value } = await (pending ?? readOn());
      pending = null;
      if (done) controller.close();
      else controller.enqueue(masked(value, secret));
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
