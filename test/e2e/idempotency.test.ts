import { afterAll, beforeAll, expect, it } from "vitest";
import { soon } from "../support/soon.ts";
import { type Stack, startStack, told } from "../support/stack.ts";

let stack: Stack;

beforeAll(async () => {
  stack = await startStack();
});
afterAll(() => stack?.stop());

const headers = { "idempotency-key": "job-17" };

it("SET-11 a caller's key is one request at a time: in progress, in conflict, and then a new attempt of its own", async () => {
  const body = { model: told("tokens=20&slow=20"), stream: true };
  const first = await stack.request(body, { headers });
  expect(first.status).toBe(200);

  const meanwhile = await stack.request(body, { headers });
  expect(meanwhile.status).toBe(409);
  expect(await meanwhile.json()).toMatchObject({ weir: { code: "request_in_progress" } });
  expect(meanwhile.headers.get("retry-after")).toBe("1");

  const other = await stack.request({ ...body, max_tokens: 99 }, { headers });
  expect(other.status).toBe(409);
  expect(await other.json()).toMatchObject({ weir: { code: "idempotency_conflict" } });
  expect(other.headers.get("x-should-retry")).toBe("false");

  await first.text();
  await soon(async () => expect((await stack.balance()).inFlight.requests).toBe(0));
  const again = await stack.request(body, { headers });
  expect(again.status).toBe(200);
  expect(again.headers.get("x-weir-request-id")).not.toBe(first.headers.get("x-weir-request-id"));
  await again.text();

  // The refused ones never left; both attempts took the key along.
  const heard = await stack.simulatorRequests();
  expect(heard.map((record) => record.headers["idempotency-key"])).toEqual(["job-17", "job-17"]);
});

it("SET-11 the same key of two tenants is two keys", async () => {
  const body = { model: told("tokens=20&slow=20"), stream: true };
  const [one, two] = await Promise.all([
    stack.request(body, { headers, tenant: "one" }),
    stack.request(body, { headers, tenant: "two" }),
  ]);
  expect([one.status, two.status]).toEqual([200, 200]);
  await Promise.all([one.text(), two.text()]);
});

it.each([
  ["idempotency-key", "x".repeat(256), /idempotency-key: expected 1 to 255/],
  ["x-weir-deadline-ms", "soon", /x-weir-deadline-ms: expected whole milliseconds/],
  ["x-weir-deadline-ms", "-5", /x-weir-deadline-ms: expected whole milliseconds/],
])("a header that means nothing is refused: %s", async (name, value, message) => {
  const answer = await stack.request({ model: told("tokens=1") }, { headers: { [name]: value } });
  expect(answer.status).toBe(400);
  expect(await answer.json()).toMatchObject({ error: { message: expect.stringMatching(message) } });
});
