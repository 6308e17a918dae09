/** The longest time without a look at the clock: timers stand still while the machine is suspended, the clock does not. */
export const LONGEST_SLEEP_MS: 500;
/** The time in which a hold is valid. It counts from sending the request that renewed it: the daemon may have answered at once. */
export class Lease {
    /**
     * @param {import('./clock.js').Reading} sent the time at which the request was sent
     * @param {number} validForMs the validity that its answer reports
     */
    constructor(sent: import("./clock.js").Reading, validForMs: number);
    /** @private */
    private sent;
    /** @private */
    private lasts;
    /**
     * Counts the validity that the answer to a later request reports.
     * @param {import('./clock.js').Reading} sent
     * @param {number} validForMs
     */
    renew(sent: import("./clock.js").Reading, validForMs: number): void;
    /** The remaining validity in milliseconds; 0 if it has passed. */
    left(): number;
    /** Whether most of the validity remains. An acquire may wait for long, so that its answer is worth little. */
    isFresh(): boolean;
    /** The time until the next keep-alive: a third of the validity after the last one was sent. */
    renewalIn(): number;
    /** The time that one keep-alive may take: half of the rest, so that another daemon can be tried before the end. */
    timeout(): number;
}
