/**
 * How long a sound is, in seconds, or the longest that so many bytes can be. A WAV says how many bytes a second it
 * has (RIFF, "fmt " chunk, nAvgBytesPerSec); for the rest it is the slowest plausible rate.
 */
import { Base64Bytes } from "./base64-bytes.ts";

/** 8 kHz in 8 bits is the least that telephones make; compressed speech is heard down to 16 kbit/s. */
const PCM_BYTES_PER_SECOND = 8_000;
const COMPRESSED_BYTES_PER_SECOND = 2_000;

export interface AudioLength {
  readonly seconds: number;
  /** No sound of so many bytes is longer; how long this one is, nobody has seen. */
  readonly bounded: boolean;
}

/** `kind` is a MIME type or a format's name. */
export function audioLengthOf(base64: string, kind: string): AudioLength {
  const bytes = new Base64Bytes(base64);
  const bytesPerSecond = wavRate(bytes);
  if (bytesPerSecond !== null) return { seconds: bytes.length / bytesPerSecond, bounded: false };
  const slowest = /wav|pcm|l16/i.test(kind) ? PCM_BYTES_PER_SECOND : COMPRESSED_BYTES_PER_SECOND;
  return { seconds: bytes.length / slowest, bounded: true };
}

const SAMPLED = 1;
const SAMPLED_EXTENSIBLE = 0xfffe;

/** Null for anything but a plain WAV, and for a rate that would make a long sound look short. */
function wavRate(bytes: Base64Bytes): number | null {
  if (!bytes.says(0, "RIFF") || !bytes.says(8, "WAVE") || !bytes.says(12, "fmt ")) return null;
  const format = bytes.little(20, 2);
  if (format !== SAMPLED && format !== SAMPLED_EXTENSIBLE) return null;
  const [channels, samplesPerSecond] = [bytes.little(22, 2), bytes.little(24, 4)];
  const [bytesPerSecond, bitsPerSample] = [bytes.little(28, 4), bytes.little(34, 2)];
  const consistent = bytesPerSecond === (channels * samplesPerSecond * bitsPerSample) / 8;
  const plausible = channels >= 1 && channels <= 8 && samplesPerSecond <= 192_000 && bitsPerSample <= 64;
  return consistent && plausible && bytesPerSecond >= PCM_BYTES_PER_SECOND ? bytesPerSecond : null;
}
