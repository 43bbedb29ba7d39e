/**
 * Counting: our counter against gpt-tokenizer on text that neither has seen in this process, on runs made to be slow,
 * first counts in fresh isolates against js-tiktoken's encoder, and a prefix that comes again.
 */
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { countTokens } from "gpt-tokenizer/encoding/o200k_base";
import { tableFile } from "../../src/cli/paths.ts";
import { BytePairCounter } from "../../src/tokens/byte-pair-counter.ts";
import { CountCache } from "../../src/tokens/count-cache.ts";
import { readVocabulary } from "../../src/tokens/vocabulary.ts";
import { Corpus, KINDS, type Kind } from "./support/corpora.ts";
import { firstCount } from "./support/first-count.ts";
import { keep, must, show, spreadOf } from "./support/report.ts";

const { buffer } = new Uint8Array(readFileSync(tableFile("o200k_base")));
const weir = new BytePairCounter("o200k_base", readVocabulary(buffer));

const ours = (text: string): number => weir.count(text).tokens;
/** As a gateway would have to call it: control-token spellings are text. */
const ALL_TEXT = { allowedSpecial: new Set<string>(), disallowedSpecial: new Set<string>() };
const theirs = (text: string): number => countTokens(text, ALL_TEXT);

/** UTF-16 units of a text, and how many of that size are counted in one measurement, so that it is no instant. */
const SIZES = [
  { units: 1_000, texts: 8 },
  { units: 16_000, texts: 2 },
  { units: 128_000, texts: 1 },
  { units: 1_000_000, texts: 1 },
] as const;
const ROUNDS = 7;
/** Of a kind that has no more; some seven hundred kilobytes of it. */
const CJK_UNITS_MAX = 250_000;
const WARMING_UNITS = 4_000;

interface Round {
  readonly bytes: number;
  readonly weirMs: number;
  readonly peerMs: number;
}

interface Speed {
  readonly kind: Kind;
  readonly units: number;
  readonly rounds: readonly Round[];
}

/** In processes of their own, as many as it takes: no text is counted twice in one. */
function speeds(kind: Kind): Speed[] {
  return SIZES.map(({ units, texts }) => {
    const size = kind === "cjk" ? Math.min(units, CJK_UNITS_MAX) : units;
    const rounds: Round[] = [];
    while (rounds.length < ROUNDS) {
      const args = [import.meta.filename, "rounds", kind, String(size), String(texts)];
      const child = spawnSync(process.execPath, args, {
        encoding: "utf8",
        stdio: ["ignore", "pipe", "inherit"],
      });
      rounds.push(...(JSON.parse(child.stdout) as Round[]));
    }
    return { kind, units: size, rounds };
  });
}

/** As many as the kind has text for. Both counters are warm by then: compiled, with common words at hand. */
function roundsOf(kind: Kind, units: number, texts: number): Round[] {
  const corpus = new Corpus(kind);
  for (let i = 0; i < (kind === "cjk" ? 12 : 40); i++) warm(corpus.next(WARMING_UNITS) ?? "");
  const rounds: Round[] = [];
  while (rounds.length < ROUNDS) {
    const some = Array.from({ length: texts }, () => corpus.next(units)).filter((text) => text !== null);
    if (some.length < texts) break;
    rounds.push(measured(some, rounds.length % 2 === 0));
  }
  return rounds;
}

function warm(text: string): void {
  if (ours(text) !== theirs(text)) throw new Error("counts differ");
}

/** The two take turns in going first. */
function measured(texts: readonly string[], weirFirst: boolean): Round {
  const bytes = texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
  const timed = (count: (text: string) => number) => {
    const startedAt = performance.now();
    const tokens = texts.reduce((sum, text) => sum + count(text), 0);
    return { tokens, ms: performance.now() - startedAt };
  };
  const [first, second] = weirFirst ? [timed(ours), timed(theirs)] : [timed(theirs), timed(ours)];
  if (first.tokens !== second.tokens) throw new Error(`counts differ: ${first.tokens} and ${second.tokens}`);
  const [weirMs, peerMs] = weirFirst ? [first.ms, second.ms] : [second.ms, first.ms];
  return { bytes, weirMs, peerMs };
}

const LETTERS: Readonly<Record<string, string>> = { a: "a", 漢: "漢", space: " ", "😀": "😀", "-": "-" };
const RUN_BYTES = [2 ** 17, 2 ** 18, 2 ** 19, 2 ** 20 - 64] as const;

/** Runs of one character: steps and the least time of seven, for each length. */
function runs() {
  return Object.entries(LETTERS).map(([name, letter]) => {
    const lengths = RUN_BYTES.map((bytes) => {
      const text = letter.repeat(Math.floor(bytes / Buffer.byteLength(letter)));
      const budget = { spentSteps: 0 };
      weir.count(text, budget);
      const times = Array.from({ length: 7 }, () => {
        const startedAt = performance.now();
        ours(text);
        return performance.now() - startedAt;
      });
      return { bytes, steps: budget.spentSteps, leastMs: Math.min(...times), timesMs: times };
    });
    return { name, lengths };
  });
}

/** A prompt of eight thousand tokens, counted anew each time and remembered. */
function prefix() {
  const corpus = new Corpus("chat");
  const cache = new CountCache(2 ** 20, crypto.getRandomValues(new Uint32Array(2)));
  const remembering = cache.remembering(weir);
  const rounds = Array.from({ length: 15 }, () => {
    const text = corpus.next(28_000) ?? "";
    const { tokens } = remembering.count(text);
    const timed = (count: () => unknown) => {
      const startedAt = performance.now();
      for (let i = 0; i < 20; i++) count();
      return (performance.now() - startedAt) / 20;
    };
    return {
      tokens,
      anewMs: timed(() => weir.count(text)),
      rememberedMs: timed(() => remembering.count(text)),
    };
  });
  return rounds.slice(5);
}

async function firstCounts() {
  const rounds = [];
  for (let round = 0; round < 5; round++)
    rounds.push({ weir: await firstCount("/weir"), peer: await firstCount("/js-tiktoken") });
  return rounds;
}

const ratios = ({ rounds }: Speed) => rounds.map(({ weirMs, peerMs }) => peerMs / weirMs);

async function main(): Promise<void> {
  const speed = KINDS.flatMap(speeds);
  for (const each of speed) {
    const rate = spreadOf(
      each.rounds.map(({ bytes, weirMs }) => bytes / weirMs / 1_000),
      1,
    );
    const ratio = spreadOf(ratios(each), 2);
    console.log(`${each.kind} ${each.units}: ${show(rate, "MB/s")}, ${show(ratio, "times gpt-tokenizer")}`);
  }
  const medians = speed.map((each) => ({ ...each, median: spreadOf(ratios(each), 2).median }));
  const overall = spreadOf(
    medians.map(({ median }) => median),
    2,
  );
  must(`median of the medians at least 2 times gpt-tokenizer: ${show(overall, "")}`, overall.median >= 2);
  must("3 times, which is the aim", overall.median >= 3);
  must(`never below 0.9 times: ${overall.least}`, overall.least >= 0.9);

  const linear = runs();
  for (const { name, lengths } of linear) {
    const [shorter, longer] = lengths.slice(-2) as [(typeof lengths)[0], (typeof lengths)[0]];
    const doubling = Math.max(
      ...lengths.slice(1).map(({ steps, bytes }, i) => {
        const before = lengths[i] as (typeof lengths)[0];
        return (steps / before.steps) * (2 / (bytes / before.bytes));
      }),
    );
    must(`"${name}": twice the run is ${doubling.toFixed(3)} times the steps`, doubling <= 2.05);
    const time = longer.leastMs / shorter.leastMs;
    must(
      `"${name}": twice the run is ${time.toFixed(2)} times the time (${longer.leastMs.toFixed(1)} ms)`,
      time <= 2.5,
    );
  }

  const repeated = prefix();
  const cheaper = spreadOf(
    repeated.map(({ anewMs, rememberedMs }) => anewMs / rememberedMs),
    1,
  );
  must(
    `a repeated prefix of ${repeated[0]?.tokens} tokens is ${show(cheaper, "times cheaper")}`,
    cheaper.median >= 10,
  );

  const first = await firstCounts();
  const share = spreadOf(
    first.map(({ weir: w, peer }) => w.cpuMs / peer.cpuMs),
    3,
  );
  const cpu = spreadOf(first.map(({ weir: w }) => w.cpuMs));
  const memory = spreadOf(
    first.map(({ weir: w }) => w.megabytes),
    1,
  );
  must(
    `first count in a fresh isolate: ${show(cpu, "ms of CPU")}, ${show(share, "of js-tiktoken's")}`,
    share.median <= 0.1,
  );
  must(`and its memory: ${show(memory, "MB")}`, memory.median < 16);

  keep("tokens", { speed: medians, overall, runs: linear, prefix: repeated, cheaper, firstCounts: first });
}

const [, , mode, kind, units, texts] = process.argv;
if (mode === "rounds") console.log(JSON.stringify(roundsOf(kind as Kind, Number(units), Number(texts))));
else await main();
