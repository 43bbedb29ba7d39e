/**
 * The split patterns of the encodings, by hand: where the piece of text ends that begins at a byte. V8 runs the
 * patterns themselves at a third of this speed, and overflows its stack on a run of a few million.
 *
 *   o200k_base    word in one case order, with what stands before it and a contraction after; up to three digits;
 *                 punctuation with newlines and slashes after it; white space to its last newline; white space but
 *                 for its last character; white space
 *   cl100k_base   the same, but words of any case, contractions on their own, and no slashes after punctuation
 */
import {
  CASELESS,
  type CharClasses,
  classOf,
  LOWER,
  MARK,
  NEWLINE,
  NUMBER,
  OTHER,
  SPACE,
  UPPER,
} from "./char-class.ts";

const SPACE_BYTE = 0x20;
const APOSTROPHE = 0x27;
const SLASH = 0x2f;

/** Of a byte that is only part of a character. In no set. */
const WIDE = 8;

/** No match: a piece has at least one byte, so no end is before its start. */
const NONE = -1;

/** A member of `1 << class` sets. */
const LETTERS = (1 << UPPER) | (1 << LOWER) | (1 << CASELESS);
const UPPER_HALF = (1 << UPPER) | (1 << CASELESS) | (1 << MARK);
const LOWER_HALF = (1 << LOWER) | (1 << CASELESS) | (1 << MARK);
const PUNCTUATION = (1 << OTHER) | (1 << MARK);
const BLANK = (1 << SPACE) | (1 << NEWLINE);
const NO_PREFIX = LETTERS | (1 << NUMBER) | (1 << NEWLINE);

/** The bytes being split, and the classes of what stands in them. UTF-8 is well formed: an encoder wrote it. */
export class Splitter {
  #bytes: Uint8Array = new Uint8Array(0);
  #end = 0;
  /** Classes of the bytes that are characters. */
  readonly #kinds = new Uint8Array(256).fill(WIDE);
  readonly #classes: CharClasses;
  /** Bytes of the character that `#classAt` looked at. */
  #width = 1;
  readonly #caseMatters: boolean;

  constructor(classes: CharClasses, caseMatters: boolean) {
    this.#classes = classes;
    this.#caseMatters = caseMatters;
    for (let byte = 0; byte < 128; byte++) this.#kinds[byte] = classOf(classes, byte);
  }

  /** Splits `bytes[0 .. end]` from now on. */
  open(bytes: Uint8Array, end: number): void {
    this.#bytes = bytes;
    this.#end = end;
  }

  /** Where the piece ends that begins at `from`, which is before `end`. */
  pieceEnd(from: number): number {
    const first = this.#classAt(from);
    const afterFirst = from + this.#width;
    if (!this.#caseMatters && this.#byte(from) === APOSTROPHE) {
      const end = this.#afterContraction(from);
      if (end !== from) return end;
    }
    if ((NO_PREFIX >> first) & 1) {
      if ((LETTERS >> first) & 1) return this.#word(from, first, from);
      if (first === NUMBER) return this.#digits(afterFirst);
      return this.#blanks(from);
    }
    const word = this.#word(afterFirst, first, from);
    if (word !== NONE) return word;
    if ((PUNCTUATION >> first) & 1) return this.#punctuation(afterFirst);
    if (this.#byte(from) === SPACE_BYTE && this.#isIn(PUNCTUATION, afterFirst))
      return this.#punctuation(afterFirst);
    return this.#blanks(from);
  }

  #byte(at: number): number {
    return this.#bytes[at] as number;
  }

  /** Also notes how wide the character is. */
  #classAt(at: number): number {
    const byte = this.#bytes[at] as number;
    if (byte >= 0x80) return this.#wideClassAt(at, byte);
    this.#width = 1;
    return this.#kinds[byte] as number;
  }

  #wideClassAt(at: number, lead: number): number {
    const bytes = this.#bytes;
    const second = (bytes[at + 1] as number) & 0x3f;
    if (lead < 0xe0) {
      this.#width = 2;
      return classOf(this.#classes, ((lead & 0x1f) << 6) | second);
    }
    const third = (bytes[at + 2] as number) & 0x3f;
    if (lead < 0xf0) {
      this.#width = 3;
      return classOf(this.#classes, ((lead & 0x0f) << 12) | (second << 6) | third);
    }
    this.#width = 4;
    const fourth = (bytes[at + 3] as number) & 0x3f;
    return classOf(this.#classes, ((lead & 0x07) << 18) | (second << 12) | (third << 6) | fourth);
  }

  #isIn(set: number, at: number): boolean {
    return at < this.#end && ((set >> this.#classAt(at)) & 1) === 1;
  }

  /** Past the longest run of characters of a set. */
  #run(set: number, from: number): number {
    const bytes = this.#bytes;
    const end = this.#end;
    const kinds = this.#kinds;
    for (let at = from; ; at += this.#width) {
      while (at < end && ((set >> (kinds[bytes[at] as number] as number)) & 1) !== 0) at += 1;
      if (at >= end) return at;
      const byte = bytes[at] as number;
      if (byte < 0x80 || ((set >> this.#wideClassAt(at, byte)) & 1) === 0) return at;
    }
  }

  /** A word whose letters begin at `body`, after a prefix of class `first` if that is not `from` itself. */
  #word(body: number, first: number, from: number): number {
    if (!this.#caseMatters) {
      const end = this.#run(LETTERS, body);
      return end === body ? NONE : end;
    }
    let end = this.#wordWithLower(body);
    // A mark may be a prefix, or belong to the word itself.
    if (end === NONE && first === MARK) end = this.#wordWithLower(from);
    if (end === NONE) {
      end = this.#run(UPPER_HALF, body);
      if (end === body) return NONE;
    }
    return this.#afterContraction(end);
  }

  /** Upper half as long as may be, and a lower half, for which the upper gives back what it must. */
  #wordWithLower(from: number): number {
    const bytes = this.#bytes;
    const end = this.#end;
    const kinds = this.#kinds;
    let lastEither = NONE;
    for (let at = from; at < end; ) {
      const byte = bytes[at] as number;
      const kind = byte < 0x80 ? (kinds[byte] as number) : this.#wideClassAt(at, byte);
      const after = byte < 0x80 ? at + 1 : at + this.#width;
      if (kind === LOWER) return this.#run(LOWER_HALF, after);
      if (((UPPER_HALF >> kind) & 1) === 0) return lastEither;
      if (kind !== UPPER) lastEither = after;
      at = after;
    }
    return lastEither;
  }

  /** Past `'s`, `'t`, `'re`, `'ve`, `'m`, `'ll` or `'d` in any case; `at` itself where none stands there. */
  #afterContraction(at: number): number {
    const bytes = this.#bytes;
    const end = this.#end;
    if (at + 1 >= end || bytes[at] !== APOSTROPHE) return at;
    const first = (bytes[at + 1] as number) | 0x20;
    if (first === 0x73 || first === 0x74 || first === 0x6d || first === 0x64) return at + 2;
    if (at + 2 >= end) return at;
    const second = (bytes[at + 2] as number) | 0x20;
    if ((first === 0x72 || first === 0x76) && second === 0x65) return at + 3;
    return first === 0x6c && second === 0x6c ? at + 3 : at;
  }

  /** Up to three in all. */
  #digits(afterFirst: number): number {
    if (!this.#isIn(1 << NUMBER, afterFirst)) return afterFirst;
    const afterSecond = afterFirst + this.#width;
    return this.#isIn(1 << NUMBER, afterSecond) ? afterSecond + this.#width : afterSecond;
  }

  #punctuation(from: number): number {
    const bytes = this.#bytes;
    const end = this.#end;
    let at = this.#run(PUNCTUATION, from);
    while (at < end) {
      const byte = bytes[at] as number;
      if (byte !== 0x0a && byte !== 0x0d && !(byte === SLASH && this.#caseMatters)) return at;
      at += 1;
    }
    return at;
  }

  /** To the last newline of the white space; without one, the last character is left to what follows. */
  #blanks(from: number): number {
    const end = this.#end;
    let at = from;
    let afterNewline = NONE;
    let last = from;
    while (at < end) {
      const kind = this.#classAt(at);
      if (((BLANK >> kind) & 1) === 0) break;
      last = at;
      at += this.#width;
      if (kind === NEWLINE) afterNewline = at;
    }
    if (afterNewline !== NONE) return afterNewline;
    return at === end || last === from ? at : last;
  }

  /**
   * The last place where a piece begins whatever stands around it: after the last letter of a word or the last digit
   * of a number. What follows the end may go on with it, so the end is none. 0 when there is none at all.
   */
  lastCut(): number {
    const bytes = this.#bytes;
    let after = OTHER;
    let apostrophe = true;
    for (let at = this.#end; at > 0; ) {
      let start = at - 1;
      while (start > 0 && ((bytes[start] as number) & 0xc0) === 0x80) start -= 1;
      const kind = this.#classAt(start);
      const letter = ((LETTERS >> kind) & 1) === 1;
      const goesOn = ((LETTERS | (1 << MARK)) >> after) & 1;
      if (letter && goesOn === 0 && !apostrophe) return at;
      if (kind === NUMBER && after !== NUMBER && at < this.#end) return at;
      after = kind;
      apostrophe = bytes[start] === APOSTROPHE;
      at = start;
    }
    return 0;
  }
}
