/** The beginnings of image files, as far as their sizes are told. */
const ascii = (letters: string) => [...letters].map((letter) => letter.charCodeAt(0));
const big = (value: number, bytes: number) =>
  Array.from({ length: bytes }, (_, i) => Math.floor(value / 256 ** (bytes - 1 - i)) & 0xff);
const little = (value: number, bytes: number) => big(value, bytes).toReversed();

export const png = (width: number, height: number): Uint8Array =>
  Uint8Array.from([
    0x89,
    ...ascii("PNG\r\n\x1a\n"),
    ...big(13, 4),
    ...ascii("IHDR"),
    ...big(width, 4),
    ...big(height, 4),
    8,
    6,
    0,
    0,
    0,
  ]);

export const gif = (width: number, height: number): Uint8Array =>
  Uint8Array.from([...ascii("GIF89a"), ...little(width, 2), ...little(height, 2), 0xf7, 0, 0]);

/** With an application's segment of so many bytes before a progressive frame, and a Huffman table between them. */
export const jpeg = (width: number, height: number, before = 14): Uint8Array =>
  Uint8Array.from([
    0xff,
    0xd8,
    0xff,
    0xe1,
    ...big(before + 2, 2),
    ...Array.from({ length: before }, () => 0xff),
    0xff,
    0xc4,
    ...big(4, 2),
    0,
    0,
    0xff,
    0xc2,
    ...big(17, 2),
    8,
    ...big(height, 2),
    ...big(width, 2),
    3,
  ]);

const riff = (chunk: readonly number[]) =>
  Uint8Array.from([...ascii("RIFF"), ...little(999, 4), ...ascii("WEBP"), ...chunk]);

export const webpLossy = (width: number, height: number): Uint8Array =>
  riff([
    ...ascii("VP8 "),
    ...little(99, 4),
    0,
    0,
    0,
    0x9d,
    0x01,
    0x2a,
    ...little(width, 2),
    ...little(height, 2),
  ]);

export const webpLossless = (width: number, height: number): Uint8Array =>
  riff([...ascii("VP8L"), ...little(99, 4), 0x2f, ...little((width - 1) | ((height - 1) << 14), 4)]);

export const webpExtended = (width: number, height: number): Uint8Array =>
  riff([...ascii("VP8X"), ...little(10, 4), 0, 0, 0, 0, ...little(width - 1, 3), ...little(height - 1, 3)]);
