/**
 * The simulator's vocabulary. Every word, with its leading space, is exactly one o200k_base token,
 * and so is every word inside a running text: N words recount to N tokens.
 */

import type { Random } from "./lengths.ts";

export const ENGLISH: readonly string[] = (
  "the of and to in it is was for on with as at by from that this water river stone bridge light " +
  "morning town field wind road house garden north south winter summer spring rain cloud tree " +
  "forest hill valley sea shore boat bird horse door window table paper letter story voice hand " +
  "eye heart mind time day night year small large quiet deep slow clear cold warm old new open " +
  "under over between after before while then flows holds turns grows moves falls rises reaches " +
  "carries keeps"
).split(" ");

/** Two, three and four byte characters, for readers that must survive a cut inside one of them. */
export const UNICODE: readonly string[] = (
  "水 河 山 世界 中国 日本 时间 人 大 今天 東京 中文 公司 日 月 年 한국 мир вода время привет " +
  "où déjà être después también über für 😊 😂 👍 😀"
).split(" ");

export function randomWord(random: Random, vocabulary: readonly string[]): string {
  const word = vocabulary[Math.floor(random() * vocabulary.length)];
  if (word === undefined) throw new Error("the vocabulary is empty");
  return ` ${word}`;
}
