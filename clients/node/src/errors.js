// Errors of the client. Each has a code for programs and the HTTP status, 0 if no daemon answered.

/** A daemon rejected a request, or none could be reached. */
export class LockkeeperError extends Error {
  /**
   * @param {string} message
   * @param {string} code
   * @param {number} status
   * @param {unknown} [cause]
   */
  constructor(message, code, status = 0, cause = undefined) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    /** The code of the error, for programs: those of the HTTP API, and `unreachable`, `tls`, `lost`. */
    this.code = code;
    /** The HTTP status; 0 if no daemon answered. */
    this.status = status;
  }
}

/** The lock was not free in time. */
export class BusyError extends LockkeeperError {}

/** The token is missing, is not valid, or does not allow the request. */
export class RefusedError extends LockkeeperError {}

/** No daemon answered in time. The code is `tls` if TLS failed with every daemon, else `unreachable`. */
export class UnreachableError extends LockkeeperError {}

/** The hold ended before it was released. */
export class LostError extends LockkeeperError {
  /**
   * @param {string} name
   * @param {string} reason
   */
  constructor(name, reason) {
    super(`the lock \`${name}\` was lost: ${reason}`, 'lost');
    /** The reason for the loss. */
    this.reason = reason;
  }
}

/**
 * The error of a response.
 * @param {number} status
 * @param {string} text
 * @returns {LockkeeperError}
 */
export function errorOf(status, text) {
  let code = 'unknown';
  let message = `the daemon answers ${status}: ${JSON.stringify(text.slice(0, 200))}`;
  try {
    const problem = JSON.parse(text);
    if (typeof problem.error === 'string' && typeof problem.message === 'string') ({ error: code, message } = problem);
  } catch {
    // The message above shows what arrived.
  }
  if (status === 409 && code === 'busy') return new BusyError(message, code, status);
  if (status === 401 || status === 403) return new RefusedError(message, code, status);
  return new LockkeeperError(message, code, status);
}

/**
 * Whether TLS itself failed, so that another attempt at the same daemon would fail too.
 * @param {unknown} failure
 * @returns {boolean}
 */
export function isTlsFailure(failure) {
  const code = failure instanceof Error && 'code' in failure ? String(failure.code) : '';
  return /^(ERR_TLS_|ERR_SSL_|EPROTO$|CERT_|UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_|HOSTNAME_|INVALID_CA)/.test(code);
}

/**
 * The error after the last attempt failed.
 * @param {unknown} failure
 * @param {boolean} tls
 * @returns {Error}
 */
export function unreachable(failure, tls) {
  if (failure instanceof LockkeeperError) return failure;
  // Node joins the failures of several addresses of one host, and such an error has no message of its own.
  const message = failure instanceof Error ? failure.message || ('code' in failure ? String(failure.code) : failure.name) : String(failure);
  if (!tls) return new UnreachableError(`no daemon can be reached: ${message}`, 'unreachable', 0, failure);
  const advice = 'check the URL, the authority (ca) and the certificate of the daemon';
  return new UnreachableError(`TLS with no daemon works: ${message}; ${advice}`, 'tls', 0, failure);
}
