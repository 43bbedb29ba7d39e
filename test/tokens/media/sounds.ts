/** Sound files of so many seconds, all of them silence. */

export interface Wav {
  readonly channels?: number;
  readonly bitsPerSample?: number;
  /** As the header says it, where that is not what the others make of it. */
  readonly bytesPerSecond?: number;
  readonly format?: number;
}

export function wav(seconds: number, samplesPerSecond: number, more: Wav = {}): Uint8Array {
  const { channels = 1, bitsPerSample = 16, format = 1 } = more;
  const rate = (samplesPerSecond * channels * bitsPerSample) / 8;
  const length = seconds * rate;
  const bytes = new Uint8Array(44 + length);
  const view = new DataView(bytes.buffer);
  const says = (at: number, letters: string) => bytes.set(new TextEncoder().encode(letters), at);
  says(0, "RIFF");
  view.setUint32(4, 36 + length, true);
  says(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, format, true);
  view.setUint16(22, channels, true);
  view.setUint32(24, samplesPerSecond, true);
  view.setUint32(28, more.bytesPerSecond ?? rate, true);
  view.setUint16(32, (channels * bitsPerSample) / 8, true);
  view.setUint16(34, bitsPerSample, true);
  says(36, "data");
  view.setUint32(40, length, true);
  return bytes;
}
