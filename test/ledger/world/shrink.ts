/** The shortest history that still breaks the same rule: parts are left out, coarse ones first, and the rest replayed. */
import { Coverage } from "./coverage.ts";
import { CORE, type Core } from "./object.ts";
import type { Deed } from "./stage.ts";
import { replay } from "./world.ts";

const NEVER_LONGER_THAN_MS = 30_000;

export function shrink(deeds: readonly Deed[], rule: string, core: Core = CORE): readonly Deed[] {
  const untilMs = Date.now() + NEVER_LONGER_THAN_MS;
  let shortest = deeds;
  const holds = (candidate: readonly Deed[]): boolean => {
    const broken = replay(candidate, new Coverage(), core);
    if (broken === null || broken.rule !== rule) return false;
    shortest = candidate.slice(0, broken.at + 1);
    return true;
  };
  for (let size = Math.ceil(deeds.length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2)) {
    for (let smaller = true; smaller; ) {
      smaller = false;
      // From the end, so that what is left out does not shift what is still to be tried.
      for (let at = shortest.length - 1 - size; at > -size; at -= size) {
        if (Date.now() > untilMs) return shortest;
        const from = Math.max(0, at);
        const without = [...shortest.slice(0, from), ...shortest.slice(at + size)];
        if (holds(without)) smaller = true;
      }
      if (size > 1) break;
    }
  }
  return shortest;
}
