/**
 * The answer of a daemon: the time at which the answered request was sent, the number of times that it was sent, and its value.
 * @typedef {{ sent: import('./clock.js').Reading, attempts: number, value: any }} Reply
 */
/**
 * Options of a request: the caller's timeout and signal, and the time for which it is repeated.
 * @typedef {{ waitMs?: number | undefined, signal?: AbortSignal | undefined, retryTimeoutMs?: number }} CallOptions
 */
/** Sends requests to the daemons of one cluster. */
export class Transport {
    /**
     * @param {import('./wire.js').Endpoint[]} endpoints
     * @param {Record<string, string>} headers
     * @param {import('node:tls').SecureContextOptions} tls
     */
    constructor(endpoints: import("./wire.js").Endpoint[], headers: Record<string, string>, tls: import("node:tls").SecureContextOptions);
    endpoints: import("./wire.js").Endpoint[];
    /** The daemon that answered last. */
    preferred: number;
    /** @private */
    private headers;
    /** @private */
    private agents;
    /**
     * Sends a request, and repeats it through the next daemon while no answer arrives.
     * @param {import('./wire.js').Call} call
     * @param {CallOptions} options
     * @returns {Promise<Reply>}
     */
    call(call: import("./wire.js").Call, { waitMs, signal, retryTimeoutMs }?: CallOptions): Promise<Reply>;
    /**
     * Sends a request to one daemon. Throws a `LockkeeperError` for an answer that is an error, and the error of the connection otherwise.
     * @param {number} place
     * @param {import('./wire.js').Call} call
     * @returns {Promise<any>}
     */
    attempt(place: number, call: import("./wire.js").Call): Promise<any>;
    /**
     * Sends a request to one daemon. Returns also whether it was sent twice.
     * @private
     * @param {number} place
     * @param {import('./wire.js').Call} call
     * @param {AbortSignal | undefined} signal
     */
    private exchange;
    /**
     * Sends a request.
     * @private
     * @param {number} place
     * @param {import('./wire.js').Call} call
     * @param {number} timeoutMs the time until the answer has arrived
     * @param {AbortSignal | undefined} signal
     * @param {boolean} [mayReuse] whether an idle connection may be used
     */
    private open;
    /**
     * An agent for one request over a connection of its own.
     * @private
     * @param {boolean} secure
     */
    private lone;
    /**
     * The lines of an endless response. The first item is `null`: the stream is open then.
     * @param {string} path
     * @param {number} place
     * @param {AbortSignal | undefined} signal
     * @returns {AsyncGenerator<string | null, void, void>}
     */
    lines(path: string, place: number, signal: AbortSignal | undefined): AsyncGenerator<string | null, void, void>;
    /** Closes the idle connections. */
    close(): void;
}
/**
 * The answer of a daemon: the time at which the answered request was sent, the number of times that it was sent, and its value.
 */
export type Reply = {
    sent: import("./clock.js").Reading;
    attempts: number;
    value: any;
};
/**
 * Options of a request: the caller's timeout and signal, and the time for which it is repeated.
 */
export type CallOptions = {
    waitMs?: number | undefined;
    signal?: AbortSignal | undefined;
    retryTimeoutMs?: number;
};
