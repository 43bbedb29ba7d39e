/** Reads a body, counting as it comes: a declared length proves nothing. */
export type ReadBody =
  | { readonly ok: true; readonly text: string }
  | { readonly ok: false; readonly reason: "too_large" | "not_utf8" };

export async function readBody(request: Request | Response, bytesMax: number): Promise<ReadBody> {
  if (request.body === null) return { ok: true, text: "" };
  const reader = request.body.getReader();
  const chunks: Uint8Array[] = [];
  let length = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    length += value.byteLength;
    if (length > bytesMax) {
      await reader.cancel("body too large");
      return { ok: false, reason: "too_large" };
    }
    chunks.push(value);
  }
  try {
    return {
      ok: true,
      text: new TextDecoder("utf-8", { fatal: true, ignoreBOM: false }).decode(joined(chunks, length)),
    };
  } catch {
    return { ok: false, reason: "not_utf8" };
  }
}

export function joined(chunks: readonly Uint8Array[], length: number): Uint8Array {
  const only = chunks[0];
  if (chunks.length === 1 && only !== undefined) return only;
  const bytes = new Uint8Array(length);
  let offset = 0;
  for (const chunk of chunks) {
    bytes.set(chunk, offset);
    offset += chunk.byteLength;
  }
  return bytes;
}
