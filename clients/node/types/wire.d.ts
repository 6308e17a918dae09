/**
 * The mode of a request.
 * @typedef {{ mode: 'exclusive' | 'shared' } | { mode: 'permit', permits: number }} Mode
 */
/**
 * The address of a daemon.
 * @typedef {{ secure: boolean, host: string, port: number }} Endpoint
 */
/**
 * A request that may be repeated. `waitMs` is the time for which the daemon may let it wait.
 * @typedef {{ method: string, path: string, body?: string, waitMs?: number, answerTimeoutMs?: number }} Call
 */
/**
 * A holder or waiter of a lock.
 * @typedef {object} Party
 * @property {string} acquisition the id of the acquisition
 * @property {number} member the member that serves the client
 * @property {string} mode `exclusive`, `shared` or `permit`
 * @property {number} [permits] the total number of permits
 * @property {string} owner the owner, as given by the client
 * @property {string} purpose the purpose, as given by the client
 * @property {bigint} [fence] the fence of a hold
 * @property {number} for_ms the time for which it has held or waited
 */
/**
 * A lock with its holders and waiters.
 * @typedef {{ name: string, holders: Party[], waiters: Party[], left_out?: number }} LockState
 */
/**
 * The leader of an election: the value that it campaigned with, its fence, and its owner.
 * @typedef {{ value: string, fence: bigint, owner: string }} Leader
 */
/**
 * Parses the URLs of the daemons of one cluster, and checks that the token would not be sent unencrypted to other machines.
 * @param {string | readonly string[]} url
 * @param {string | undefined} token
 * @param {boolean} insecureNoTls
 * @returns {Endpoint[]}
 */
export function endpoints(url: string | readonly string[], token: string | undefined, insecureNoTls: boolean): Endpoint[];
/**
 * The headers of every request.
 * @param {string | undefined} token
 * @returns {Record<string, string>}
 */
export function headers(token: string | undefined): Record<string, string>;
/** The owner that lists show if the caller names none. */
export function defaultOwner(): string;
/**
 * The path of a lock.
 * @param {string} name
 * @param {string} verb
 */
export function lockPath(name: string, verb?: string): string;
/**
 * A request for a session. If the answer is lost, a session without holds remains until its time to live has passed.
 * @param {number} ttlMs
 * @param {string} owner
 * @returns {Call}
 */
export function newSession(ttlMs: number, owner: string): Call;
/**
 * A request for a lock. The daemons recognise a repetition by the session and the request id.
 * @param {string} name
 * @param {Mode} mode
 * @param {string} session
 * @param {string} purpose
 * @param {number} waitMs
 * @returns {Call}
 */
export function acquire(name: string, mode: Mode, session: string, purpose: string, waitMs: number): Call;
/**
 * A request to release a hold.
 * @param {string} name
 * @param {string} hold
 * @returns {Call}
 */
export function release(name: string, hold: string): Call;
/**
 * A request that extends a session.
 * @param {string} session
 * @param {number} answerTimeoutMs
 * @returns {Call}
 */
export function keepAlive(session: string, answerTimeoutMs: number): Call;
/**
 * A request that ends a session, with its holds and waiting requests.
 * @param {string} session
 * @returns {Call}
 */
export function endSession(session: string): Call;
/**
 * A hold of a named owner, without a living process, as it was when it was acquired or looked up.
 * @typedef {object} DetachedHold
 * @property {string} name
 * @property {string} owner
 * @property {'exclusive' | 'shared' | 'permit'} mode
 * @property {bigint | null} fence the same for every request of the owner until the hold ends; `null` for a permit
 * @property {number} leftMs the time until its deadline
 */
/**
 * A request for a detached hold. A repetition finds the hold by its owner.
 * @param {string} name
 * @param {Mode} mode
 * @param {string} owner
 * @param {number} lastsMs
 * @param {string} purpose
 * @param {number} waitMs
 * @returns {Call}
 */
export function holdAs(name: string, mode: Mode, owner: string, lastsMs: number, purpose: string, waitMs: number): Call;
/**
 * A request for the detached hold that an owner has already.
 * @param {string} name
 * @param {string} owner
 * @returns {Call}
 */
export function findDetached(name: string, owner: string): Call;
/**
 * A request to release the detached hold of an owner.
 * @param {string} name
 * @param {string} owner
 * @returns {Call}
 */
export function releaseAs(name: string, owner: string): Call;
/**
 * Reads the answer to a request for a detached hold.
 * @param {any} answer
 * @returns {DetachedHold}
 */
export function detachedOf({ name, owner, mode, fence, left_ms: leftMs }: any): DetachedHold;
/**
 * Parses JSON with fences as `bigint`: a JavaScript number has 53 bits, a fence has 63.
 * @param {string} text
 * @returns {any}
 */
export function parse(text: string): any;
/**
 * Reads the answer to a keep-alive, as far as it concerns one hold: the validity, or the reason for which the hold was lost.
 * @param {any} answer
 * @param {string} hold
 * @returns {{ validForMs: number } | { lost: string }}
 */
export function alive(answer: any, hold: string): {
    validForMs: number;
} | {
    lost: string;
};
/**
 * The purpose that carries a candidate's value: the same JSON as the Rust library writes and reads.
 * @param {string} value
 * @param {string} owner
 */
export function purposeOf(value: string, owner: string): string;
/**
 * The leader, given the lock of the election; `null` if there is none.
 * @param {LockState} lock
 * @returns {Leader | null}
 */
export function leaderOf(lock: LockState): Leader | null;
/**
 * Whether a response means that another attempt, perhaps at another daemon, may succeed.
 * @param {number} status
 */
export function isRetryable(status: number): boolean;
/** The longest wait that a daemon accepts in one request. */
export const LONGEST_WAIT_MS: 86400000;
/** The time that a connection may take. */
export const CONNECT_TIMEOUT_MS: 3000;
/** The time that an answer may take beyond the requested wait. */
export const ANSWER_TIMEOUT_MS: 10000;
/** The time for which a request is repeated while no daemon answers. */
export const RETRY_TIMEOUT_MS: 10000;
/**
 * Decides which daemon a request goes to next, and when the client gives up.
 *
 * A round tries every daemon once, without a pause. Between rounds the client pauses for a random time that grows. A daemon with which TLS
 * fails is not tried again.
 */
export class Attempts {
    /**
     * @param {number} count the number of daemons
     * @param {number} first the daemon to try first
     * @param {number | undefined} waitMs the caller's timeout, from now on
     * @param {number} retryTimeoutMs
     */
    constructor(count: number, first: number, waitMs: number | undefined, retryTimeoutMs: number);
    endpoint: number;
    /** @private */
    private count;
    /** @private */
    private waitMs;
    /** @private */
    private retryTimeoutMs;
    /** @private */
    private began;
    /** @private */
    private tried;
    /** @private @type {import('./clock.js').Reading | undefined} */
    private failingSince;
    /** @private @type {Set<number>} */
    private tlsFailures;
    /**
     * Notes a failed attempt. Returns the pause before the next one, in milliseconds; throws the error if the client gives up.
     * @param {unknown} failure
     * @param {import('./clock.js').Reading} sent
     * @returns {number}
     */
    failed(failure: unknown, sent: import("./clock.js").Reading): number;
    /** @private */
    private retriesFor;
}
/**
 * The mode of a request.
 */
export type Mode = {
    mode: "exclusive" | "shared";
} | {
    mode: "permit";
    permits: number;
};
/**
 * The address of a daemon.
 */
export type Endpoint = {
    secure: boolean;
    host: string;
    port: number;
};
/**
 * A request that may be repeated. `waitMs` is the time for which the daemon may let it wait.
 */
export type Call = {
    method: string;
    path: string;
    body?: string;
    waitMs?: number;
    answerTimeoutMs?: number;
};
/**
 * A holder or waiter of a lock.
 */
export type Party = {
    /**
     * the id of the acquisition
     */
    acquisition: string;
    /**
     * the member that serves the client
     */
    member: number;
    /**
     * `exclusive`, `shared` or `permit`
     */
    mode: string;
    /**
     * the total number of permits
     */
    permits?: number;
    /**
     * the owner, as given by the client
     */
    owner: string;
    /**
     * the purpose, as given by the client
     */
    purpose: string;
    /**
     * the fence of a hold
     */
    fence?: bigint;
    /**
     * the time for which it has held or waited
     */
    for_ms: number;
};
/**
 * A lock with its holders and waiters.
 */
export type LockState = {
    name: string;
    holders: Party[];
    waiters: Party[];
    left_out?: number;
};
/**
 * The leader of an election: the value that it campaigned with, its fence, and its owner.
 */
export type Leader = {
    value: string;
    fence: bigint;
    owner: string;
};
/**
 * A hold of a named owner, without a living process, as it was when it was acquired or looked up.
 */
export type DetachedHold = {
    name: string;
    owner: string;
    mode: "exclusive" | "shared" | "permit";
    /**
     * the same for every request of the owner until the hold ends; `null` for a permit
     */
    fence: bigint | null;
    /**
     * the time until its deadline
     */
    leftMs: number;
};
