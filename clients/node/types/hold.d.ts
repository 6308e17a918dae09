/**
 * Ends a session in the background. If that fails, it ends when its time to live has passed.
 * @param {import('./transport.js').Transport} transport
 * @param {string} session
 */
export function endSessionLater(transport: import("./transport.js").Transport, session: string): void;
/** A hold on a lock, kept alive until it is released or lost. It keeps the process running. */
export class Hold {
    /**
     * @internal
     * @param {import('./transport.js').Transport} transport
     * @param {import('./transport.js').Reply} reply
     */
    constructor(transport: import("./transport.js").Transport, { sent, value }: import("./transport.js").Reply);
    /**
     * The lock's name.
     * @type {string}
     */
    name: string;
    /**
     * Above the fences of all earlier holders: pass it with every write to the protected resource. `null` for a permit.
     * @type {bigint | null}
     */
    fence: bigint | null;
    /**
     * Aborted when the hold is lost; its reason is a `LostError`.
     * @returns {AbortSignal}
     */
    get signal(): AbortSignal;
    /** Whether no other client can hold the lock at this moment. The next moment may differ: only the fence protects the next step. */
    get valid(): boolean;
    /** The time for which the hold is valid without further keep-alives, in milliseconds. */
    get validForMs(): number;
    /**
     * Releases the lock. Returns whether it was held until now. May be called again.
     * @returns {Promise<boolean>}
     */
    release(): Promise<boolean>;
    /** Throws a `LostError` if the hold was lost. */
    throwIfLost(): void;
    /**
     * Confirms the hold, and starts to keep it alive.
     * @internal
     */
    start(): Promise<void>;
    /** Releases the lock at the end of an `await using` block, and throws a `LostError` if it was not held until then. */
    [Symbol.asyncDispose](): Promise<void>;
    #private;
}
/** The leadership, until it is resigned or lost. */
export class Leadership extends Hold {
    /** Resigns, so that the next candidate can lead. Returns whether this candidate led until now. */
    resign(): Promise<boolean>;
}
