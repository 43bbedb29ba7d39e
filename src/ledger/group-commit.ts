/**
 * Which events are written together, and who waits for which write. It keeps its own time: while one
 * write is on its way to the disk, what happens meanwhile gathers and goes with the next. Nothing waits when
 * nothing is under way, and under load one write carries a crowd.
 *
 * Pure: the shell does the writing, and says when a write has arrived.
 */
import { REFUSALS_PER_BATCH_MAX } from "./bounds.ts";
import { isRecorded, isRider, type LedgerEvent, type RecordedEvent } from "./types.ts";

export class GroupCommit {
  #gathered: RecordedEvent[] = [];
  #refusals = 0;
  /** Something gathered was promised to somebody, and wants a write of its own accord. */
  #urgent = false;
  #underWay = false;
  #writes = 0;

  /** Takes what a call has done. `write` is what must be written now; the caller's answer may go once write `ticket` has begun. */
  add(events: readonly LedgerEvent[]): {
    readonly write: readonly RecordedEvent[] | null;
    readonly ticket: number;
  } {
    for (const event of events) {
      if (!isRecorded(event)) continue;
      if (event.type === "refused") {
        // A flood of refusals is a number, and not a story.
        if (this.#refusals === REFUSALS_PER_BATCH_MAX) continue;
        this.#refusals += 1;
      }
      this.#gathered.push(event);
      this.#urgent ||= !isRider(event);
    }
    const write = this.#urgent && !this.#underWay ? this.#take() : null;
    return { write, ticket: this.#urgent ? this.#writes + 1 : this.#writes };
  }

  /** The write under way has reached the disk. What gathered meanwhile, if it may not wait for company. */
  arrived(): readonly RecordedEvent[] | null {
    this.#underWay = false;
    return this.#urgent ? this.#take() : null;
  }

  /** Riders have waited long enough. Null when they went already, or will go right after the write under way. */
  flush(): readonly RecordedEvent[] | null {
    if (!this.hasImpatientRiders) return null;
    this.#urgent = true;
    return this.#underWay ? null : this.#take();
  }

  /** Whether a rider waits that must not wait for long; that a call runs is told by its next capture as well. */
  get hasImpatientRiders(): boolean {
    return !this.#urgent && this.#gathered.some(({ type }) => type !== "ran");
  }

  /** How many writes have begun. */
  get writes(): number {
    return this.#writes;
  }

  #take(): readonly RecordedEvent[] {
    const taken = this.#gathered;
    this.#gathered = [];
    this.#refusals = 0;
    this.#urgent = false;
    this.#underWay = true;
    this.#writes += 1;
    return taken;
  }
}
