/**
 * Options of a lock.
 * @typedef {object} LockOptions
 * @property {number} [waitMs] the timeout; none by default
 * @property {number} [ttlMs] the time to live: the hold ends this long after the last keep-alive of this process. Default: 30 s
 * @property {string} [purpose] the purpose that lists show to other clients
 * @property {AbortSignal} [signal] cancels the wait for the lock
 */
/**
 * A lock that can be acquired.
 * @template {Hold} [H=Hold]
 */
export class Lock<H extends Hold = Hold> {
    /**
     * @internal
     * @param {import('./transport.js').Transport} transport
     * @param {string} owner
     * @param {string} name
     * @param {import('./wire.js').Mode} mode
     * @param {LockOptions} options
     * @param {new (transport: import('./transport.js').Transport, reply: import('./transport.js').Reply) => H} kind
     */
    constructor(transport: import("./transport.js").Transport, owner: string, name: string, mode: import("./wire.js").Mode, options: LockOptions, kind: new (transport: import("./transport.js").Transport, reply: import("./transport.js").Reply) => H);
    /** @private */
    private transport;
    /** @private */
    private owner;
    /** @private */
    private mode;
    /** @private */
    private options;
    /** @private */
    private kind;
    /** The lock's name. */
    name: string;
    /**
     * Waits for the lock. Throws a `BusyError` if it was not free in time, and the signal's reason if the signal is aborted.
     * @param {{ signal?: AbortSignal, waitMs?: number }} [options] override those of the lock
     * @returns {Promise<H>}
     */
    acquire(options?: {
        signal?: AbortSignal;
        waitMs?: number;
    }): Promise<H>;
    /**
     * Acquires the lock if it is free; `null` if it is not.
     * @returns {Promise<H | null>}
     */
    tryAcquire(): Promise<H | null>;
    /**
     * Holds the lock for a named owner for `lastsMs`, without a session: no process has to be alive. Waits for the lock as `acquire` does. If
     * the owner has the hold already, the same fence is returned at once, and the deadline moves. `Client.releaseAs` ends it; `ttlMs` does not
     * apply.
     * @param {string} owner
     * @param {number} lastsMs
     * @param {{ signal?: AbortSignal, waitMs?: number }} [options] override those of the lock
     * @returns {Promise<import('./wire.js').DetachedHold>}
     */
    holdAs(owner: string, lastsMs: number, options?: {
        signal?: AbortSignal;
        waitMs?: number;
    }): Promise<import("./wire.js").DetachedHold>;
    /**
     * The same if the lock is free, or if the owner has it already; `null` otherwise.
     * @param {string} owner
     * @param {number} lastsMs
     * @returns {Promise<import('./wire.js').DetachedHold | null>}
     */
    tryHoldAs(owner: string, lastsMs: number): Promise<import("./wire.js").DetachedHold | null>;
    /**
     * Runs a function under the lock. Its argument's `signal` is aborted if the hold is lost, and the function should end then. Throws a
     * `LostError` in that case.
     * @template T
     * @param {(hold: H) => Promise<T> | T} work
     * @returns {Promise<T>}
     */
    run<T>(work: (hold: H) => Promise<T> | T): Promise<T>;
    /** @private */
    private ttlMs;
    /**
     * Waits for the lock by a session, which is kept alive meanwhile.
     * @private
     * @param {string} session
     * @param {() => number | undefined} left
     * @param {AbortSignal | undefined} signal
     */
    private acquireBy;
    /**
     * Keeps a session alive while it waits. If the session ends, the waiting request ends with that error.
     * @private
     * @param {string} session
     * @param {AbortController} ended
     * @param {AbortSignal} finished
     */
    private keepAlive;
}
/**
 * Options of a lock.
 */
export type LockOptions = {
    /**
     * the timeout; none by default
     */
    waitMs?: number;
    /**
     * the time to live: the hold ends this long after the last keep-alive of this process. Default: 30 s
     */
    ttlMs?: number;
    /**
     * the purpose that lists show to other clients
     */
    purpose?: string;
    /**
     * cancels the wait for the lock
     */
    signal?: AbortSignal;
};
/**
 * A candidate: `acquire` waits until it is elected.
 */
export type Candidate = Lock<Leadership>;
import { Hold } from './hold.js';
import { Leadership } from './hold.js';
