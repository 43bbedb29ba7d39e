/**
 * Virtual keys: what a team holds in place of a provider's secret. A key is a token signed for one
 * tenant, so it is checked without a look-up and an unknown tenant never mints a ledger.
 */
import { errors, jwtVerify, SignJWT } from "jose";

export type KeyClass = "interactive" | "batch";

export interface KeyClaims {
  readonly keyId: string;
  readonly tenant: string;
  readonly class: KeyClass;
  /** Counted by limits per user; null for a key that is nobody's in particular. */
  readonly user: string | null;
}

export interface VirtualKeyOrder extends KeyClaims {
  readonly secret: string;
  readonly issuedAtMs: number;
  /** `null`: the key does not expire. */
  readonly expiresAtMs: number | null;
}

export type VerifiedKey =
  | { readonly ok: true; readonly claims: KeyClaims }
  | { readonly ok: false; readonly reason: "malformed" | "bad_signature" | "expired" };

/** A shorter secret could be guessed from any one key that is signed with it. */
export const KEY_SECRET_CHARACTERS_MIN = 32;

const PREFIX = "weir_";
const PARTY = "weir";
/** An honest key takes some 300 characters; a longer text is refused before it is decoded. */
const KEY_CHARACTERS_MAX = 2_048;
const TENANT_NAME = /^[a-z0-9][a-z0-9_-]{0,62}$/;

export function isTenantName(name: string): boolean {
  return TENANT_NAME.test(name);
}

export async function mintVirtualKey(order: VirtualKeyOrder): Promise<string> {
  const user = order.user === null ? {} : { user: order.user };
  const token = new SignJWT({ class: order.class, ...user })
    .setProtectedHeader({ alg: "HS256" })
    .setIssuer(PARTY)
    .setAudience(PARTY)
    .setSubject(order.tenant)
    .setJti(order.keyId)
    .setIssuedAt(seconds(order.issuedAtMs));
  if (order.expiresAtMs !== null) token.setExpirationTime(seconds(order.expiresAtMs));
  return PREFIX + (await token.sign(await signingKey(order.secret)));
}

/** Never throws on account of the key: whatever a caller sends is a verdict. */
export async function verifyVirtualKey(key: string, secret: string, nowMs: number): Promise<VerifiedKey> {
  if (!key.startsWith(PREFIX) || key.length > KEY_CHARACTERS_MAX) return { ok: false, reason: "malformed" };
  const signer = await signingKey(secret);
  try {
    const { payload } = await jwtVerify(key.slice(PREFIX.length), signer, {
      algorithms: ["HS256"],
      issuer: PARTY,
      audience: PARTY,
      currentDate: new Date(nowMs),
    });
    const { sub: tenant, jti: keyId, class: keyClass, user = null } = payload;
    if (tenant === undefined || !isTenantName(tenant) || keyId === undefined || !isKeyClass(keyClass)) {
      return { ok: false, reason: "malformed" };
    }
    if (user !== null && !isUserName(user)) return { ok: false, reason: "malformed" };
    return { ok: true, claims: { keyId, tenant, class: keyClass, user } };
  } catch (error) {
    if (error instanceof errors.JWTExpired) return { ok: false, reason: "expired" };
    if (error instanceof errors.JWSSignatureVerificationFailed) return { ok: false, reason: "bad_signature" };
    return { ok: false, reason: "malformed" };
  }
}

export function isKeyClass(value: unknown): value is KeyClass {
  return value === "interactive" || value === "batch";
}

/** Printable, and short enough to name a limit's instance. */
export function isUserName(value: unknown): value is string {
  return typeof value === "string" && /^[\x21-\x7e]{1,128}$/.test(value);
}

const seconds = (instantMs: number): number => Math.floor(instantMs / 1_000);

const importHmac = (secret: string) =>
  crypto.subtle.importKey("raw", new TextEncoder().encode(secret), { name: "HMAC", hash: "SHA-256" }, false, [
    "sign",
    "verify",
  ]);

/** A deployment has one secret. The key itself is kept and not its promise, which belongs to the request that made it. */
let imported: { readonly secret: string; readonly key: Awaited<ReturnType<typeof importHmac>> } | null = null;

async function signingKey(secret: string) {
  if (imported?.secret !== secret) imported = { secret, key: await importHmac(secret) };
  return imported.key;
}
