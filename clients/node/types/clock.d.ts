/**
 * A reading of both clocks, in milliseconds.
 * @typedef {{ monotonic: number, uptime: number }} Reading
 */
/**
 * Reads both clocks.
 * @returns {Reading}
 */
export function read(): Reading;
/**
 * The time since a reading, in milliseconds: never less than what has passed.
 * @param {Reading} reading
 * @returns {number}
 */
export function since(reading: Reading): number;
/**
 * A reading of both clocks, in milliseconds.
 */
export type Reading = {
    monotonic: number;
    uptime: number;
};
