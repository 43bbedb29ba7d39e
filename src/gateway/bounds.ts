/** Every bound of the data path, with its unit and its reason. */

/** Bytes of a request body read before it is refused: room for images in data URIs, far from the isolate's 128 MB. */
export const BODY_BYTES_MAX = 16 * 1024 * 1024;

/** Bytes of a body of the reservation API, which holds a few numbers. */
export const RESERVATION_BODY_BYTES_MAX = 64 * 1024;

/** Bytes of a unary answer kept for reading its usage; what is longer still flows, and all its text counts as output. */
export const UNARY_READ_BYTES_MAX = 16 * 1024 * 1024;

/** What is left of an answer that was generated whole is read for so long after its caller has gone: it tells the price. */
export const DRAIN_MAX_MS = 10_000;

/** For a provider to say what became of an earlier answer. */
export const OUTCOME_TIMEOUT_MS = 10_000;

/** Of a provider's answer to how large a prompt is, which holds a few numbers. */
export const COUNT_ANSWER_BYTES_MAX = 64 * 1024;

/** Of a provider's request id, as recorded. */
export const PROVIDER_REQUEST_ID_LENGTH_MAX = 200;

/** A running stream is captured at least this often, so that a death is charged for what it produced. */
export const CAPTURE_INTERVAL_MS = 5_000;

/** And sooner, after this much output. */
export const CAPTURE_EVERY_TOKENS = 512;

/** The lease is renewed at least so often within its time-to-live: two lost captures do not lose it. */
export const RENEWALS_PER_TTL = 3;

/** Of a caller's idempotency key, as recorded. */
export const IDEMPOTENCY_KEY_LENGTH_MAX = 255;

/** The longest that any caller may ask to wait. */
export const QUEUE_MS_MAX = 600_000;

/** Settling is retried on fresh stubs: idempotent by request id. Waits in ms between the attempts. */
export const SETTLE_RETRY_WAITS_MS = [50, 250, 1_000] as const;

/** SDKs ignore a longer retry-after and fall back to seconds: better to tell them not to retry. */
export const RETRY_AFTER_HONOURED_MS = 60_000;
