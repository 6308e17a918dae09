// The clock that validity is counted on: it is never set, and it continues while the machine is suspended.
//
// Node's own monotonic clock stands still in suspend on Linux (CLOCK_MONOTONIC). The uptime of the system counts suspend, in steps of 10 ms
// (Linux: /proc/uptime; Windows: GetTickCount64; macOS: wall-clock time since the boot). The longer of the two counts.

import os from 'node:os';
import { performance } from 'node:perf_hooks';

// The resolution of the uptime.
const STEP_MS = 10;

/**
 * A reading of both clocks, in milliseconds.
 * @typedef {{ monotonic: number, uptime: number }} Reading
 */

/**
 * Reads both clocks.
 * @returns {Reading}
 */
export function read() {
  return { monotonic: performance.now(), uptime: os.uptime() * 1000 };
}

/**
 * The time since a reading, in milliseconds: never less than what has passed.
 * @param {Reading} reading
 * @returns {number}
 */
export function since(reading) {
  const now = read();
  return Math.max(now.monotonic - reading.monotonic, now.uptime - reading.uptime + STEP_MS);
}
