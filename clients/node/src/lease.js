// The arithmetic of leases.

import { since } from './clock.js';

// The counted part of a reported validity. While chrony corrects a clock, the clock may run slow by up to 1/12: more time has passed than it
// shows. The daemon leaves a tenth for this, too; a client does not rely on that.
const COUNTED = 11 / 12;
// The shortest time in which a daemon can be expected to answer a keep-alive.
const SHORTEST_TIMEOUT_MS = 200;

/** The longest time without a look at the clock: timers stand still while the machine is suspended, the clock does not. */
export const LONGEST_SLEEP_MS = 500;

/** The time in which a hold is valid. It counts from sending the request that renewed it: the daemon may have answered at once. */
export class Lease {
  /**
   * @param {import('./clock.js').Reading} sent the time at which the request was sent
   * @param {number} validForMs the validity that its answer reports
   */
  constructor(sent, validForMs) {
    /** @private */
    this.sent = sent;
    /** @private */
    this.lasts = validForMs * COUNTED;
  }

  /**
   * Counts the validity that the answer to a later request reports.
   * @param {import('./clock.js').Reading} sent
   * @param {number} validForMs
   */
  renew(sent, validForMs) {
    this.sent = sent;
    this.lasts = validForMs * COUNTED;
  }

  /** The remaining validity in milliseconds; 0 if it has passed. */
  left() {
    return Math.max(this.lasts - since(this.sent), 0);
  }

  /** Whether most of the validity remains. An acquire may wait for long, so that its answer is worth little. */
  isFresh() {
    return since(this.sent) < this.lasts / 2;
  }

  /** The time until the next keep-alive: a third of the validity after the last one was sent. */
  renewalIn() {
    return Math.max(this.lasts / 3 - since(this.sent), 0);
  }

  /** The time that one keep-alive may take: half of the rest, so that another daemon can be tried before the end. */
  timeout() {
    return Math.max(Math.min(this.left() / 2, 5000), SHORTEST_TIMEOUT_MS);
  }
}
