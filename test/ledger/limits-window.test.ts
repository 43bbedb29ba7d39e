import { describe, expect, it } from "vitest";
import type { WindowSpec } from "../../src/policy/limit-schema.ts";
import { bucket, calendar, TestLedger } from "../support/ledger.ts";
import { change } from "./steps.ts";

const at = Date.parse;
const window = (capacity: number, more: Partial<WindowSpec> = {}) =>
  calendar(capacity, { name: "window", unit: "tokens", ...more });

describe("a window", () => {
  // every, zone, an instant in it, its end
  it.each([
    ["hour", "UTC", "2024-02-29T23:00:00Z", "2024-03-01T00:00:00Z"],
    ["hour", "Asia/Kolkata", "2024-06-01T10:29:59.999Z", "2024-06-01T10:30:00Z"],
    ["hour", "America/New_York", "2024-11-03T05:10:00Z", "2024-11-03T06:00:00Z"],
    ["day", "UTC", "2023-12-31T00:00:00Z", "2024-01-01T00:00:00Z"],
    ["day", "America/Sao_Paulo", "2018-11-03T12:00:00Z", "2018-11-04T03:00:00Z"],
    ["day", "America/Sao_Paulo", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"],
    ["day", "America/Sao_Paulo", "2018-02-18T02:30:00Z", "2018-02-18T03:00:00Z"],
    ["day", "Africa/Cairo", "2023-04-27T21:59:59.999Z", "2023-04-27T22:00:00Z"],
    ["day", "Africa/Cairo", "2023-04-27T22:00:00Z", "2023-04-28T21:00:00Z"],
    ["day", "Africa/Cairo", "2023-10-26T21:30:00Z", "2023-10-26T22:00:00Z"],
    ["day", "Australia/Lord_Howe", "2018-10-06T13:30:00Z", "2018-10-07T13:00:00Z"],
    ["day", "Pacific/Apia", "2011-12-30T09:59:59.999Z", "2011-12-30T10:00:00Z"],
    ["week", "Europe/Berlin", "2024-03-25T12:00:00Z", "2024-03-31T22:00:00Z"],
    ["week", "UTC", "1970-01-01T00:16:40Z", "1970-01-05T00:00:00Z"],
    ["month", "UTC", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z"],
    ["month", "UTC", "2023-02-28T23:59:59.999Z", "2023-03-01T00:00:00Z"],
    ["month", "UTC", "2100-02-28T12:00:00Z", "2100-03-01T00:00:00Z"],
    ["month", "Asia/Tokyo", "2024-12-31T14:59:59Z", "2024-12-31T15:00:00Z"],
  ] as const)("of a %s in %s that holds %s ends at %s", (every, timeZone, inside, ends) => {
    const ledger = new TestLedger(window(100, { every, timeZone }));
    ledger.nowMs = at(inside);
    ledger.reserve("a", 100, 0);
    expect(ledger.reserve("b", 1, 0)).toMatchObject({
      code: "tokens_exhausted",
      retryAfterMs: at(ends) - at(inside),
    });
    expect(ledger.row("window").resetsAtMs).toBe(at(ends));
    ledger.nowMs = at(ends) - 1;
    expect(ledger.reserve("b", 1, 0).type).toBe("refused");
    ledger.nowMs = at(ends);
    expect(ledger.reserve("b", 100, 0).type).toBe("reserved");
  });

  it("holds and spends of one amount, and a refund is for use again", () => {
    const ledger = new TestLedger(window(1_000));
    ledger.reserve("a", 600, 0);
    expect(ledger.reserve("b", 401, 0)).toMatchObject({ requested: 401, available: 400 });
    ledger.settle("a", 100, 0);
    expect(ledger.row("window")).toMatchObject({
      level: 900,
      held: 0,
      settledTotal: 100,
      refillPerMinute: 0,
    });
    expect(ledger.reserve("b", 900, 0).type).toBe("reserved");
  });

  it("goes into debt by an overrun, and the next one begins without it", () => {
    const ledger = new TestLedger(window(1_000, { every: "hour" }));
    ledger.reserve("a", 1_000, 0);
    ledger.settle("a", 1_500, 0);
    expect(ledger.row("window")).toMatchObject({ level: -500, debt: 500 });
    ledger.nowMs = 3_600_000;
    ledger.sweep();
    expect(ledger.row("window")).toMatchObject({ level: 1_000, debt: 0, settledTotal: 1_500 });
  });

  it("charges a call that crosses its end to the window that it began in, whole and once", () => {
    const ledger = new TestLedger(bucket(10_000, 0), window(1_000, { every: "hour" }));
    ledger.nowMs = 3_599_000;
    for (const id of ["settled", "released", "corrected"]) ledger.reserve(id, 300, 0);
    ledger.nowMs = 3_600_000;
    expect(ledger.sweep()).toMatchObject([{ type: "window_turned", limit: "window" }]);
    expect(ledger.row("window")).toMatchObject({ level: 1_000, held: 0 });
    expect(ledger.settle("settled", 900, 0)).toMatchObject({
      moves: [{ limit: "tenant-tokens", returned: 300 }],
    });
    ledger.run({ type: "release", requestId: "released", fence: 1, evidence: "not_sent" });
    ledger.settle("corrected", 10, 0, "under_estimate");
    ledger.settle("corrected", 700, 0);
    expect(ledger.row("window")).toMatchObject({ level: 1_000, held: 0, settledTotal: 0, creditedTotal: 0 });
    expect(ledger.level()).toBe(10_000 - 900 - 700);
    expect(ledger.sameAsFold()).toBe(true);
  });

  it("turns once, however long nobody came", () => {
    const ledger = new TestLedger(window(1_000, { every: "hour" }));
    ledger.reserve("a", 1_000, 0);
    ledger.settle("a", 1_000, 0);
    ledger.nowMs = 100 * 3_600_000 + 1;
    expect(ledger.sweep()).toMatchObject([{ span: { startsAtMs: 360_000_000, endsAtMs: 363_600_000 } }]);
    expect(ledger.sweep()).toEqual([]);
    expect(ledger.level("window")).toBe(1_000);
  });

  it("turns for each of its instances", () => {
    const ledger = new TestLedger(window(100, { every: "hour", per: ["model"] }));
    ledger.reserve("a", 100, 0);
    ledger.settle("a", 100, 0);
    expect(ledger.reserve("b", 1, 0).type).toBe("refused");
    ledger.nowMs = 3_600_000;
    expect(ledger.reserve("b", 100, 0).type).toBe("reserved");
  });

  it("outlives a change of its amount, and begins anew with another calendar", () => {
    const ledger = new TestLedger(window(1_000));
    ledger.reserve("a", 400, 0);
    ledger.settle("a", 400, 0);
    change(ledger, [window(2_000)]);
    expect(ledger.level("window")).toBe(1_600);
    change(ledger, [window(2_000, { every: "hour" })]);
    expect(ledger.level("window")).toBe(2_000);
    change(ledger, [window(2_000, { every: "hour", timeZone: "Asia/Tokyo" })]);
    ledger.reserve("b", 1, 0);
    expect(ledger.level("window")).toBe(1_999);
  });
});

describe("a window's stopping rule", () => {
  it("hold: says no as soon as the hold does not fit", () => {
    const ledger = new TestLedger(window(1_000, { stop: "hold" }));
    ledger.reserve("a", 900, 0);
    expect(ledger.reserve("b", 101, 0)).toMatchObject({ code: "tokens_exhausted" });
    expect(ledger.reserve("c", 1_001, 0)).toMatchObject({ code: "request_too_large" });
  });

  it("spent: says no once all is spent, so that the last calls may pass it", () => {
    const ledger = new TestLedger(window(1_000, { stop: "spent" }));
    for (const id of ["a", "b", "c"]) expect(ledger.reserve(id, 900, 0).type).toBe("reserved");
    ledger.settle("a", 999, 0);
    expect(ledger.reserve("d", 5_000, 0).type).toBe("reserved");
    ledger.settle("b", 1, 0);
    expect(ledger.reserve("e", 1, 0)).toMatchObject({ code: "tokens_exhausted" });
    expect(ledger.row("window").settledTotal).toBe(1_000);
  });

  it("never: only tells", () => {
    const ledger = new TestLedger(window(1_000, { stop: "never", alerts: [1] }));
    ledger.reserve("a", 5_000, 0);
    expect(ledger.settle("a", 5_000, 0)).toMatchObject({ moves: [{ alert: 1 }] });
    expect(ledger.reserve("b", 5_000, 0).type).toBe("reserved");
    expect(ledger.level("window")).toBe(-9_000);
  });

  it("tells the highest share that a settlement passes, and each once", () => {
    const ledger = new TestLedger(window(1_000, { alerts: [0.5, 0.8, 1], stop: "spent" }));
    const alert = (id: string, tokens: number) => {
      ledger.reserve(id, 1, 0);
      const event = ledger.settle(id, tokens, 0);
      return event.type === "settled" ? event.moves[0]?.alert : undefined;
    };
    expect(alert("a", 499)).toBeNull();
    expect(alert("b", 1)).toBe(0.5);
    expect(alert("c", 1)).toBeNull();
    expect(alert("d", 499)).toBe(1);
  });
});
