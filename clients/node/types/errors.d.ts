/**
 * The error of a response.
 * @param {number} status
 * @param {string} text
 * @returns {LockkeeperError}
 */
export function errorOf(status: number, text: string): LockkeeperError;
/**
 * Whether TLS itself failed, so that another attempt at the same daemon would fail too.
 * @param {unknown} failure
 * @returns {boolean}
 */
export function isTlsFailure(failure: unknown): boolean;
/**
 * The error after the last attempt failed.
 * @param {unknown} failure
 * @param {boolean} tls
 * @returns {Error}
 */
export function unreachable(failure: unknown, tls: boolean): Error;
/** A daemon rejected a request, or none could be reached. */
export class LockkeeperError extends Error {
    /**
     * @param {string} message
     * @param {string} code
     * @param {number} status
     * @param {unknown} [cause]
     */
    constructor(message: string, code: string, status?: number, cause?: unknown);
    /** The code of the error, for programs: those of the HTTP API, and `unreachable`, `tls`, `lost`. */
    code: string;
    /** The HTTP status; 0 if no daemon answered. */
    status: number;
}
/** The lock was not free in time. */
export class BusyError extends LockkeeperError {
}
/** The token is missing, is not valid, or does not allow the request. */
export class RefusedError extends LockkeeperError {
}
/** No daemon answered in time. The code is `tls` if TLS failed with every daemon, else `unreachable`. */
export class UnreachableError extends LockkeeperError {
}
/** The hold ended before it was released. */
export class LostError extends LockkeeperError {
    /**
     * @param {string} name
     * @param {string} reason
     */
    constructor(name: string, reason: string);
    /** The reason for the loss. */
    reason: string;
}
