/** Bugs that somebody could have written, each by hand: one place of one file, and what stands there instead. */
export interface Mutant {
  readonly name: string;
  readonly file: string;
  /** Occurs in the file exactly once. */
  readonly find: string;
  readonly replace: string;
}

const of =
  (file: string) =>
  (name: string, find: string, replace: string): Mutant => ({ name, file, find, replace });

const limits = of("src/ledger/limits.ts");
const bounds = of("src/ledger/bounds.ts");
const decide = of("src/ledger/decide.ts");
const settle = of("src/ledger/settle.ts");
const reserve = of("src/ledger/reserve.ts");
const evolve = of("src/ledger/evolve.ts");
const waiting = of("src/ledger/waiting.ts");
const turn = of("src/ledger/turn.ts");
const commit = of("src/ledger/group-commit.ts");
const ledger = of("durable-objects/tenant-ledger.ts");
const store = of("durable-objects/ledger-store.ts");

const ofLimits: readonly Mutant[] = [
  limits(
    "debt clamped at zero",
    "limit.level += net * LEVEL_PER_UNIT - forfeitedLevel;",
    "limit.level = Math.max(0, limit.level + net * LEVEL_PER_UNIT - forfeitedLevel);",
  ),
  limits(
    "refund above capacity",
    "forfeitedLevel = Math.max(0, overfull);",
    "forfeitedLevel = 0 * overfull;",
  ),
  limits(
    "refill above capacity",
    "return Math.min(refilled, capacity * LEVEL_PER_UNIT);",
    "return refilled;",
  ),
  limits(
    "refill rounded",
    "limit.level + spec.refillPerMinute * (atMs - limit.asOfMs);",
    "limit.level + LEVEL_PER_UNIT * Math.round((spec.refillPerMinute * (atMs - limit.asOfMs)) / LEVEL_PER_UNIT);",
  ),
  limits("floor ignored", "* LEVEL_PER_UNIT * spec.batchFloor);", "* LEVEL_PER_UNIT * spec.batchFloor * 0);"),
  limits(
    "retry of a bucket a millisecond early",
    "Math.ceil(missingLevel / spec.refillPerMinute)",
    "Math.floor(missingLevel / spec.refillPerMinute)",
  ),
  limits(
    "retry of a rolling limit a second early",
    "(second + ROLLING_SECONDS) * 1_000 - atMs",
    "(second + ROLLING_SECONDS - 1) * 1_000 - atMs",
  ),
  limits(
    "rolling refund goes to now",
    `        const slot = limit.slots.find((candidate) => candidate.second === second);
        if (slot !== undefined) slot.amount -= net - forfeitedLevel;`,
    "        slotOf(limit, atMs + 0 * second).amount -= net - forfeitedLevel;",
  ),
  bounds("rolling counts fifty-nine seconds and a bit", "ROLLING_SECONDS = 61;", "ROLLING_SECONDS = 60;"),
  limits("a window takes its holds along", "  limit.held = 0;\n  limit.spent = 0;", "  limit.spent = 0;"),
  limits(
    "a spent window stops by its holds",
    "limit.spent < (spec.capacity ?? 0) ? 0 : 1;",
    "limit.spent + limit.held < (spec.capacity ?? 0) ? 0 : 1;",
  ),
  limits("an alert is told again", "if (before < share && share <= after", "if (share <= after"),
  limits(
    "a call larger than its gauge waits for ever",
    `if (spec.unit === "in_flight_tokens" && limit.held === 0 && capacityOf(limit) !== 0) return 0;`,
    "",
  ),
  limits(
    "a policy change forgives debt",
    "limit.level = Math.min(limit.level, (spec.capacity ?? 0) * LEVEL_PER_UNIT);",
    "limit.level = (spec.capacity ?? 0) * LEVEL_PER_UNIT;",
  ),
  limits(
    "debtors are forgotten",
    `return kind === "gauge" || unitsOf(limit, atMs) === capacityOf(limit);`,
    "return kind.length + atMs > 0;",
  ),
  limits(
    "auto paces beside a bucket",
    `bound === null || (bound === "auto" && isPaced(spec, limits))`,
    `bound === null || (bound === "auto" && isPaced(spec, []))`,
  ),
  bounds("auto believes a provider that slows", "AUTO_MEDIAN_MAX = 2;", "AUTO_MEDIAN_MAX = 2_000;"),
  of("src/ledger/stay.ts")(
    "auto from the first call on",
    "if (stay.samples < AUTO_SAMPLES_MIN) return null;",
    "if (stay.samples < AUTO_SAMPLES_MIN - 49) return null;",
  ),
  of("src/ledger/amounts.ts")(
    "money rounded to the nearest",
    "Math.ceil(pico / PICO_PER_NANO)",
    "Math.round(pico / PICO_PER_NANO)",
  ),
  of("src/ledger/amounts.ts")(
    "cached input at full weight",
    "size.inputTokens - cached + Math.ceil(cached * cachedInputWeight)",
    "size.inputTokens + Math.ceil(cached * cachedInputWeight * 0)",
  ),
  of("src/ledger/calendar.ts")(
    "a day begins at a midnight that does not exist",
    "[Math.min(before, after), Math.max(before, after)]",
    "[Math.max(before, after), Math.min(before, after)]",
  ),
  of("src/ledger/calendar.ts")(
    "a century has a leap day",
    "Math.floor(yearOfEra / 4) - Math.floor(yearOfEra / 100) + dayOfYear;",
    "Math.floor(yearOfEra / 4) + dayOfYear;",
  ),
];

const ofLeases: readonly Mutant[] = [
  decide(
    "an older fence is believed",
    "if (command.fence !== lease.fence && !truth)",
    "if (command.fence > lease.fence && !truth)",
  ),
  decide(
    "the truth needs the newest fence",
    `const truth = command.type === "settle" && command.basis === "exact";`,
    `const truth = command.type === "settle" && command.fence < 0;`,
  ),
  decide(
    "repeated capture added",
    "inputTokens: Math.max(lease.captured.inputTokens, command.size.inputTokens)",
    "inputTokens: lease.captured.inputTokens + command.size.inputTokens",
  ),
  decide(
    "an older capture lowers the totals",
    "outputTokens: Math.max(lease.captured.outputTokens, command.size.outputTokens)",
    "outputTokens: command.size.outputTokens",
  ),
  decide(
    "a repeated capture is another",
    "if (command.usageEventId === lease.lastUsageEventId) return",
    "if (command.usageEventId === null) return",
  ),
  decide(
    "a capture of a frozen lease renews it",
    `lease.state === "RECONCILING" ? lease.expiresAtMs : atMs + lease.ttlMs`,
    "atMs + lease.ttlMs",
  ),
  decide(
    "expiry releases a dispatched lease",
    `const to = lease.state === "RESERVED"`,
    `const to = lease.state === "RESERVED" || lease.state === "DISPATCHED"`,
  ),
  decide(
    "release without evidence",
    "maySayNo && evidence !== null && tokensOf(lease.captured) === 0",
    "maySayNo && tokensOf(lease.captured) === 0",
  ),
  decide(
    "release of what was captured",
    "maySayNo && evidence !== null && tokensOf(lease.captured) === 0",
    "maySayNo && evidence !== null",
  ),
  decide(
    "a refused call's request is given back",
    `keepsRequest && spec.unit === "requests" ? 1 : 0`,
    `keepsRequest && spec.unit === "requests" ? 0 : 0`,
  ),
  decide(
    "top-up without admission",
    "shortages(state, contested, lease.class, atMs)",
    "shortages(state, [], lease.class, atMs)",
  ),
  decide(
    "top-up past the route's ceiling",
    "perRequestMaxTokens !== null && tokensOf(hold) > perRequestMaxTokens",
    "perRequestMaxTokens !== null && tokens > perRequestMaxTokens",
  ),
  decide("take-over keeps the fence", "fence: lease.fence + 1", "fence: lease.fence"),
  decide(
    "resolved before its time",
    "if (lease.expiresAtMs > atMs) return unchanged(state, requestId, atMs);",
    "",
  ),
  settle(
    "settled below what was captured",
    "outputTokens: Math.max(usage.outputTokens, captured.outputTokens)",
    "outputTokens: usage.outputTokens",
  ),
  settle(
    "settled twice",
    "if (lease.settlement !== null) return resettle(",
    "if (lease.settlement?.basis === basis) return resettle(",
  ),
  settle("corrected twice", `firstBasis !== "exact" && !corrected)`, `firstBasis !== "exact")`),
  settle("a correction only ever charges", "credited: Math.max(0, -delta)", "credited: 0"),
  settle(
    "a late settlement moves a limit that began anew",
    "if (definition?.generation !== charge.generation) return null;",
    "if (definition === undefined) return null;",
  ),
  settle(
    "an overrun is forgiven",
    "const spent = Math.max(0, spentOf(limit) - charge.spent);",
    "const spent = Math.min(charge.amount, Math.max(0, spentOf(limit) - charge.spent));",
  ),
  evolve(
    "a forgotten lease's key is a conflict for ever",
    "      state.byIdempotencyKey.delete(key);",
    "      state.byIdempotencyKey.get(key);",
  ),
  evolve(
    "a renewed lease keeps its place",
    "if (from === to && lease.expiresAtMs === dueBefore) return;",
    "if (from === to && lease.expiresAtMs >= dueBefore) return;",
  ),
  of("src/ledger/snapshot.ts")(
    "a restart forgets what was spent",
    'charges.push({ limit: keys[limit] ?? "", generation, amount, spent });',
    'charges.push({ limit: keys[limit] ?? "", generation, amount, spent: spent * 0 });',
  ),
  of("src/ledger/upgrade.ts")(
    "an upgraded guess is final",
    "{ ...settlement, corrected: false }",
    "{ ...settlement, corrected: true }",
  ),
];

const ofAdmission: readonly Mutant[] = [
  reserve(
    "refused reserve leaves a trace",
    "return queueOrShed(state, command, policy, { hold, demands, short, behind }, atMs);",
    "{\n    for (const { limit } of demands) limit.held += 1;\n    return queueOrShed(state, command, policy, { hold, demands, short, behind }, atMs);\n  }",
  ),
  reserve(
    "too large judged after exhausted",
    "if (tooLarge !== null) return tooLarge;",
    "const fitting = demands.filter(({ limit, amount }) => amount <= mostOf(limit, command.class));\n  if (tooLarge !== null && shortages(state, fitting, command.class, atMs).length === 0) return tooLarge;",
  ),
  reserve(
    "a key with another body gets the first one's lease",
    "first?.idempotency?.digest !== idempotency.digest",
    "first === undefined",
  ),
  reserve(
    "two attempts of one key at once",
    "if (lease !== undefined && isClosed(lease.state)) return null;",
    "if (lease !== undefined) return null;",
  ),
  reserve(
    "a closed id is opened by its late reserve",
    "if (known?.fence === 0) return",
    "if (known?.fence === -1) return",
  ),
  reserve(
    "a newcomer overtakes who waits",
    "short.length > 0 ? null : isBehindSomebody(",
    "short.length >= 0 ? null : isBehindSomebody(",
  ),
  reserve(
    "a grant out of the queue is taken for sent",
    "command.dispatch && waitedMs === null",
    "command.dispatch && waitedMs !== -1",
  ),
  reserve(
    "a grant that nobody takes up lives on",
    "Math.min(ACCEPT_MS, ttlMs)",
    "Math.max(ACCEPT_MS, ttlMs)",
  ),
  reserve(
    "the queue is one longer than it may be",
    "state.queue.byId.size >= lengthMax",
    "state.queue.byId.size > lengthMax",
  ),
  reserve(
    "all may wait, however hopeless",
    "if (predicted.waitMs > queueMs)",
    "if (predicted.waitMs > queueMs * 1_000)",
  ),
  waiting(
    "the queue passes its head",
    "      lacking.add(short, command.class, atMs);\n      if (lacking.stopsAll) return;\n",
    "",
  ),
  waiting(
    "one full model stops all the others",
    `this.#stopsAll ||= !key.includes("|") &&`,
    "this.#stopsAll ||= key.length > 0 &&",
  ),
  waiting(
    "an old batch closes the room below its floor",
    `requestClass === "interactive" && codeOf(`,
    `requestClass === "batch" && codeOf(`,
  ),
  waiting(
    "a waiter's key is not known",
    "if (key !== undefined) queue.byIdempotencyKey.set(key, waiter.requestId);",
    "",
  ),
  waiting("a leaver keeps its place", "queue.byClass[waiter.command.class].remove(waiter);", ""),
  waiting("a leaver's tokens stay", "queue.tokens -= tokensOf(waiter.hold);", ""),
  waiting(
    "batch is never passed",
    `(requestClass === "batch" ? BATCH_LAG_MS : 0)`,
    `(requestClass === "batch" ? BATCH_LAG_MS * 0 : 0)`,
  ),
  waiting(
    "a deadline is the moment after",
    "if (deadlineAtMs <= atMs) ids.push(requestId);",
    "if (deadlineAtMs < atMs) ids.push(requestId);",
  ),
  waiting("one release admits one", "if (admitted === ADMIT_MAX) return;", "if (admitted === 1) return;"),
  turn(
    "a window never turns",
    "if (span !== null && span.endsAtMs <= atMs)",
    "if (span !== null && span.endsAtMs <= 0)",
  ),
  turn("a sweep without a bound", "looked < SWEEP_LEASES_MAX", "looked < SWEEP_LEASES_MAX * 100"),
  turn(
    "time goes back",
    "export function turn(state: LedgerState, command: Command, nowMs: number): Turn {\n  const atMs = Math.max(state.nowMs, nowMs);",
    "export function turn(state: LedgerState, command: Command, nowMs: number): Turn {\n  const atMs = nowMs;",
  ),
  commit(
    "an answer goes before its write has begun",
    "ticket: this.#urgent ? this.#writes + 1 : this.#writes",
    "ticket: this.#writes",
  ),
  commit(
    "two writes under way at once",
    "this.#urgent && !this.#underWay ? this.#take() : null",
    "this.#urgent ? this.#take() : null",
  ),
  commit(
    "riders whose time is up are left behind",
    "    this.#urgent = true;\n    return this.#underWay",
    "    return this.#underWay",
  ),
  of("src/ledger/types.ts")(
    "what makes a lease a sent one may be lost",
    `if (event.type === "ran") return !event.dispatches;`,
    `if (event.type === "ran") return true;`,
  ),
];

const ofTheObject: readonly Mutant[] = [
  ledger("memory stays ahead of a record that failed", "this.ctx.abort(`", "void (`"),
  ledger(
    "an alarm that found nothing due does not come back",
    "    // Also when nothing was due: the head may have been renewed since.\n    this.#arm();",
    "",
  ),
  ledger(
    "an answer leaves before its write has begun",
    "if (ticket > this.#commit.writes) await",
    "if (ticket < 0) await",
  ),
  ledger("riders wait for company for ever", "    this.#mindRiders();\n", ""),
  ledger("nobody wakes a waiter", "    this.#mindQueue(events);\n", ""),
  store("a gap in the record goes unseen", "if (seq !== this.#seq + 1)", "if (seq < this.#seq)"),
  store(
    "parts of an older checkpoint are read as well",
    "parts.filter((part) => part.seq === seq)",
    "parts.filter((part) => part.seq > 0)",
  ),
  store(
    "the ring laps its checkpoint",
    "const CHECKPOINT_EVERY_ROWS = RING_SLOTS / 2;",
    "const CHECKPOINT_EVERY_ROWS = RING_SLOTS * 2;",
  ),
];

export const mutants: readonly Mutant[] = [...ofLimits, ...ofLeases, ...ofAdmission, ...ofTheObject];
