import { v7 } from "uuid";

/** New for each attempt and time-ordered; a caller's own id is only ever a label. */
export function newRequestId(): string {
  return `req_${v7()}`;
}
