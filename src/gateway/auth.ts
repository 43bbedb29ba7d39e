/** Who is calling: the virtual key says it, and no other header can. No object is touched. */
import type { RequestClass } from "../policy/schema.ts";
import { verifyVirtualKey } from "./virtual-key.ts";

export interface Caller {
  readonly tenant: string;
  readonly keyId: string;
  readonly class: RequestClass;
  /** Whom the key was signed for, within the tenant; null when for nobody in particular. */
  readonly user: string | null;
}

export type Authenticated =
  | { readonly ok: true; readonly caller: Caller }
  | {
      readonly ok: false;
      readonly code: "unauthenticated" | "forbidden" | "invalid_request";
      readonly message: string;
    };

/** `inQuery` are keys that the query brought, where the dialect allows one there. */
export async function authenticate(
  headers: Headers,
  inQuery: readonly string[],
  tenant: string,
  keySecret: string,
  nowMs: number,
): Promise<Authenticated> {
  const credentials = new Set([...credentialsOf(headers), ...inQuery]);
  if (credentials.size === 0)
    return refused("unauthenticated", "No key was given: send a weir key as Authorization: Bearer.");
  if (credentials.size > 1) return refused("invalid_request", "Two different keys were given: send one.");
  const [credential = ""] = credentials;
  const verified = await verifyVirtualKey(credential, keySecret, nowMs);
  if (!verified.ok) {
    const why = {
      malformed: "is not a weir key",
      bad_signature: "was not signed by this gateway",
      expired: "has expired",
    }[verified.reason];
    return refused("unauthenticated", `The key ${why}.`);
  }
  const { claims } = verified;
  if (claims.tenant !== tenant)
    return refused("forbidden", `The key belongs to another tenant than ${tenant}.`);
  return { ok: true, caller: claims };
}

function credentialsOf(headers: Headers): string[] {
  const bearer = headers
    .get("authorization")
    ?.match(/^bearer\s+(.+)$/i)?.[1]
    ?.trim();
  return [bearer, headers.get("x-api-key"), headers.get("x-goog-api-key"), headers.get("api-key")].filter(
    (credential): credential is string => typeof credential === "string" && credential !== "",
  );
}

const refused = (
  code: "unauthenticated" | "forbidden" | "invalid_request",
  message: string,
): Authenticated => ({ ok: false, code, message });
