/**
 * Width and height of a PNG, JPEG, GIF or WebP out of its header. Sources: PNG (W3C, IHDR), JPEG (ITU-T T.81, B.2.2),
 * GIF89a (logical screen descriptor), WebP (RFC 9649).
 */
import { Base64Bytes } from "./base64-bytes.ts";

export interface ImageSize {
  readonly width: number;
  readonly height: number;
}

/** A file has some ten segments before its frame; one made of nothing else is not read to its end. */
const SEGMENTS_MAX = 256;

/** Null for anything that is none of these, is cut short, or has no area. */
export function imageSizeOf(base64: string): ImageSize | null {
  const bytes = new Base64Bytes(base64);
  const size = pngSize(bytes) ?? gifSize(bytes) ?? webpSize(bytes) ?? jpegSize(bytes);
  return size !== null && size.width > 0 && size.height > 0 ? size : null;
}

function pngSize(bytes: Base64Bytes): ImageSize | null {
  if (!bytes.says(1, "PNG\r\n") || !bytes.says(12, "IHDR")) return null;
  return { width: bytes.big(16, 4), height: bytes.big(20, 4) };
}

function gifSize(bytes: Base64Bytes): ImageSize | null {
  if (!bytes.says(0, "GIF8")) return null;
  return { width: bytes.little(6, 2), height: bytes.little(8, 2) };
}

function webpSize(bytes: Base64Bytes): ImageSize | null {
  if (!bytes.says(0, "RIFF") || !bytes.says(8, "WEBP")) return null;
  if (bytes.says(12, "VP8X")) return { width: 1 + bytes.little(24, 3), height: 1 + bytes.little(27, 3) };
  if (bytes.says(12, "VP8L") && bytes.at(20) === 0x2f) {
    const packed = bytes.little(21, 4);
    if (Number.isNaN(packed)) return null;
    return { width: 1 + (packed & 0x3fff), height: 1 + ((packed >>> 14) & 0x3fff) };
  }
  if (bytes.says(12, "VP8 ") && bytes.says(23, "\x9d\x01\x2a"))
    return { width: bytes.little(26, 2) & 0x3fff, height: bytes.little(28, 2) & 0x3fff };
  return null;
}

function jpegSize(bytes: Base64Bytes): ImageSize | null {
  if (bytes.big(0, 2) !== 0xffd8) return null;
  let at = 2;
  for (let segment = 0; segment < SEGMENTS_MAX && bytes.at(at) === 0xff; segment++) {
    const marker = bytes.at(at + 1);
    // A marker may be preceded by filling.
    if (marker === 0xff) {
      at += 1;
      continue;
    }
    if (isFrame(marker)) return { width: bytes.big(at + 7, 2), height: bytes.big(at + 5, 2) };
    at += 2 + bytes.big(at + 2, 2);
  }
  return null;
}

/** SOF0 to SOF15, among which three are something else. */
const isFrame = (marker: number): boolean =>
  marker >= 0xc0 && marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc;
