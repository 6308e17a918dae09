/**
 * Options of a client.
 * @typedef {object} ClientOptions
 * @property {string} [token] the token, if the daemons need one
 * @property {string} [owner] the owner that lists show to other clients
 * @property {string | Buffer} [ca] the authority of the daemons' certificates (PEM); default: the authorities that Node knows
 * @property {string | Buffer} [cert] the client's own certificate (PEM), if the daemons need one
 * @property {string | Buffer} [key] the key of that certificate (PEM)
 * @property {boolean} [insecureNoTls] allows to send the token to other machines unencrypted
 */
/** A daemon, or several of one cluster: a request goes to the next one if one does not answer. */
export class Client {
    /**
     * @param {string | readonly string[]} url
     * @param {ClientOptions} [options]
     */
    constructor(url?: string | readonly string[], options?: ClientOptions);
    /** @private */
    private owner;
    /** @private */
    private transport;
    /** Closes idle connections. Holds continue. */
    close(): void;
    /**
     * The lock, for one holder at a time.
     * @param {string} name
     * @param {import('./lock.js').LockOptions} [options]
     * @returns {Lock}
     */
    lock(name: string, options?: import("./lock.js").LockOptions): Lock;
    /**
     * The lock in shared mode, for several holders at a time.
     * @param {string} name
     * @param {import('./lock.js').LockOptions} [options]
     * @returns {Lock}
     */
    shared(name: string, options?: import("./lock.js").LockOptions): Lock;
    /**
     * One of `permits` permits.
     * @param {string} name
     * @param {number} permits
     * @param {import('./lock.js').LockOptions} [options]
     * @returns {Lock}
     */
    permit(name: string, permits: number, options?: import("./lock.js").LockOptions): Lock;
    /**
     * The election of that name. Its leader is the holder of the lock of that name.
     * @param {string} name
     * @returns {Election}
     */
    election(name: string): Election;
    /**
     * The detached hold of an owner on the lock; `null` if it has none. See `Lock.holdAs`.
     * @param {string} name
     * @param {string} owner
     * @returns {Promise<import('./wire.js').DetachedHold | null>}
     */
    detached(name: string, owner: string): Promise<import("./wire.js").DetachedHold | null>;
    /**
     * Releases the detached hold of an owner. Returns whether it had one; `false` also if the answer to a first attempt was lost.
     * @param {string} name
     * @param {string} owner
     * @returns {Promise<boolean>}
     */
    releaseAs(name: string, owner: string): Promise<boolean>;
    /**
     * Every lock that is held or waited for.
     * @param {string} prefix
     * @returns {Promise<import('./wire.js').LockState[]>}
     */
    locks(prefix?: string): Promise<import("./wire.js").LockState[]>;
    /**
     * The holders and the waiters of a lock.
     * @param {string} name
     * @returns {Promise<import('./wire.js').LockState>}
     */
    describe(name: string): Promise<import("./wire.js").LockState>;
    /**
     * The holders that the first waiter waits for, and the holders that those wait for in turn.
     * @param {string} name
     * @returns {Promise<{ chain: { waiter: string, lock: string, holder: string }[], deadlock: boolean }>}
     */
    why(name: string): Promise<{
        chain: {
            waiter: string;
            lock: string;
            holder: string;
        }[];
        deadlock: boolean;
    }>;
    /**
     * Revokes the holds on the lock. Their clients are notified. Returns the released acquisitions.
     * @param {string} name
     * @returns {Promise<string[]>}
     */
    forceRelease(name: string): Promise<string[]>;
    /**
     * The members of the cluster.
     * @returns {Promise<Record<string, unknown>[]>}
     */
    members(): Promise<Record<string, unknown>[]>;
    /**
     * The state of the daemon and of its member.
     * @returns {Promise<Record<string, unknown>>}
     */
    status(): Promise<Record<string, unknown>>;
    /**
     * The name of the token, and what it allows.
     * @returns {Promise<Record<string, unknown>>}
     */
    whoami(): Promise<Record<string, unknown>>;
    /**
     * The state of each lock with that prefix, and again whenever it changes. Ends when the daemon ends the stream.
     * @param {string} prefix
     * @param {{ signal?: AbortSignal }} [options]
     * @returns {AsyncGenerator<import('./wire.js').LockState, void, void>}
     */
    watch(prefix?: string, { signal }?: {
        signal?: AbortSignal;
    }): AsyncGenerator<import("./wire.js").LockState, void, void>;
    /**
     * The events of a watch stream; `null` once it is open.
     * @internal
     * @param {string} prefix
     * @param {AbortSignal | undefined} signal
     * @returns {AsyncGenerator<import('./wire.js').LockState | null, void, void>}
     */
    events(prefix: string, signal: AbortSignal | undefined): AsyncGenerator<import("./wire.js").LockState | null, void, void>;
    /**
     * @private
     * @param {string} path
     * @returns {Promise<any>}
     */
    private get;
}
/** An election: its leader is the holder of the lock of that name. */
export class Election {
    /**
     * @internal
     * @param {Client} client
     * @param {Transport} transport
     * @param {string} owner
     * @param {string} name
     */
    constructor(client: Client, transport: Transport, owner: string, name: string);
    /** @private */
    private client;
    /** @private */
    private transport;
    /** @private */
    private owner;
    /** The name of the election. */
    name: string;
    /**
     * A candidate with a value that observers see, such as an address.
     * @param {string} value
     * @param {Omit<import('./lock.js').LockOptions, 'purpose'>} [options]
     * @returns {Lock<Leadership>}
     */
    campaign(value: string, options?: Omit<import("./lock.js").LockOptions, "purpose">): Lock<Leadership>;
    /**
     * The current leader; `null` if there is none.
     * @returns {Promise<import('./wire.js').Leader | null>}
     */
    leader(): Promise<import("./wire.js").Leader | null>;
    /**
     * The current leader, and then each new one; `null` while there is none. It continues through another daemon if one dies.
     * @param {{ signal?: AbortSignal }} [options]
     * @returns {AsyncGenerator<import('./wire.js').Leader | null, void, void>}
     */
    observe({ signal }?: {
        signal?: AbortSignal;
    }): AsyncGenerator<import("./wire.js").Leader | null, void, void>;
}
/**
 * Options of a client.
 */
export type ClientOptions = {
    /**
     * the token, if the daemons need one
     */
    token?: string;
    /**
     * the owner that lists show to other clients
     */
    owner?: string;
    /**
     * the authority of the daemons' certificates (PEM); default: the authorities that Node knows
     */
    ca?: string | Buffer;
    /**
     * the client's own certificate (PEM), if the daemons need one
     */
    cert?: string | Buffer;
    /**
     * the key of that certificate (PEM)
     */
    key?: string | Buffer;
    /**
     * allows to send the token to other machines unencrypted
     */
    insecureNoTls?: boolean;
};
import { Lock } from './lock.js';
import { Leadership } from './hold.js';
import { Transport } from './transport.js';
