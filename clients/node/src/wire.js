// Requests and replies of the HTTP API as values, and the order in which daemons are tried. No I/O.

import { randomUUID } from 'node:crypto';
import { isIP } from 'node:net';
import { hostname } from 'node:os';
import { isTlsFailure, unreachable } from './errors.js';
import { since, read } from './clock.js';

/** The longest wait that a daemon accepts in one request. */
export const LONGEST_WAIT_MS = 86_400_000;
/** The time that a connection may take. */
export const CONNECT_TIMEOUT_MS = 3000;
/** The time that an answer may take beyond the requested wait. */
export const ANSWER_TIMEOUT_MS = 10_000;
/** The time for which a request is repeated while no daemon answers. */
export const RETRY_TIMEOUT_MS = 10_000;
// The same for a request whose own timeout is shorter than this.
const SHORTEST_RETRY_TIMEOUT_MS = 2000;
// The daemon's limit for the text in which a candidate's value is sent, in characters.
const LONGEST_PURPOSE = 256;

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
export function endpoints(url, token, insecureNoTls) {
  const urls = typeof url === 'string' ? [url] : url;
  if (urls.length === 0) throw new TypeError('no url was given');
  const parsed = urls.map(endpoint);
  const exposed = parsed.find(({ secure, host }) => !secure && !isLoopback(host));
  if (token !== undefined && exposed !== undefined && !insecureNoTls) {
    const advice = 'write https://, or pass insecureNoTls: true if the network is trusted';
    throw new TypeError(`the token would go to ${exposed.host} unencrypted: ${advice}`);
  }
  return parsed;
}

/**
 * Parses a URL. No error quotes it: it may contain a token, in a place where none is expected.
 * @param {string} url
 * @returns {Endpoint}
 */
function endpoint(url) {
  /** @type {URL | undefined} */
  let parts;
  try {
    parts = new URL(url);
  } catch {
    // Reported below.
  }
  const right = parts !== undefined && ['http:', 'https:'].includes(parts.protocol) && parts.hostname !== '' && !/[@?#]/.test(url) && parts.pathname === '/';
  if (!right || parts === undefined) {
    throw new TypeError('a url is no address of a daemon: http://host:port or https://host:port is expected, and a token is passed as `token`');
  }
  const secure = parts.protocol === 'https:';
  // URL leaves out the port that is usual for the scheme, which is not that of a daemon.
  const written = /:(\d+)\/?$/.exec(url)?.[1];
  return { secure, host: parts.hostname.replace(/^\[|\]$/g, ''), port: written === undefined ? 7422 : Number(written) };
}

/** @param {string} host */
function isLoopback(host) {
  if (isIP(host) === 4) return host.startsWith('127.');
  return isIP(host) === 6 ? host === '::1' : host.toLowerCase() === 'localhost';
}

/**
 * The headers of every request.
 * @param {string | undefined} token
 * @returns {Record<string, string>}
 */
export function headers(token) {
  if (token === undefined) return { accept: 'application/json' };
  if (!/^[\x21-\x7e]+$/.test(token)) throw new TypeError('the token contains characters that no token has, perhaps the end of a line');
  return { accept: 'application/json', authorization: `Bearer ${token}` };
}

/** The owner that lists show if the caller names none. */
export function defaultOwner() {
  return `${hostname()} (node)`;
}

/**
 * The path of a lock.
 * @param {string} name
 * @param {string} verb
 */
export function lockPath(name, verb = '') {
  // Signs that `encodeURIComponent` leaves are allowed in a path.
  const path = `/v1/locks/${encodeURIComponent(name)}`;
  return verb === '' ? path : `${path}/${verb}`;
}

/**
 * A request for a session. If the answer is lost, a session without holds remains until its time to live has passed.
 * @param {number} ttlMs
 * @param {string} owner
 * @returns {Call}
 */
export function newSession(ttlMs, owner) {
  return { method: 'POST', path: '/v1/sessions', body: JSON.stringify({ ttl_ms: Math.floor(ttlMs), owner }) };
}

/**
 * A request for a lock. The daemons recognise a repetition by the session and the request id.
 * @param {string} name
 * @param {Mode} mode
 * @param {string} session
 * @param {string} purpose
 * @param {number} waitMs
 * @returns {Call}
 */
export function acquire(name, mode, session, purpose, waitMs) {
  const body = { ...mode, session, request: randomUUID(), purpose, wait_ms: Math.floor(waitMs) };
  return { method: 'POST', path: lockPath(name, 'acquire'), body: JSON.stringify(body), waitMs };
}

/**
 * A request to release a hold.
 * @param {string} name
 * @param {string} hold
 * @returns {Call}
 */
export function release(name, hold) {
  return { method: 'POST', path: lockPath(name, 'release'), body: JSON.stringify({ hold }) };
}

/**
 * A request that extends a session.
 * @param {string} session
 * @param {number} answerTimeoutMs
 * @returns {Call}
 */
export function keepAlive(session, answerTimeoutMs) {
  return { method: 'POST', path: `/v1/sessions/${session}/keep-alive`, answerTimeoutMs };
}

/**
 * A request that ends a session, with its holds and waiting requests.
 * @param {string} session
 * @returns {Call}
 */
export function endSession(session) {
  return { method: 'DELETE', path: `/v1/sessions/${session}` };
}

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
export function holdAs(name, mode, owner, lastsMs, purpose, waitMs) {
  const body = { ...mode, owner, for_ms: Math.max(Math.floor(lastsMs), 1), purpose, wait_ms: Math.floor(waitMs) };
  return { method: 'POST', path: lockPath(name, 'hold-as'), body: JSON.stringify(body), waitMs };
}

/**
 * A request for the detached hold that an owner has already.
 * @param {string} name
 * @param {string} owner
 * @returns {Call}
 */
export function findDetached(name, owner) {
  return { method: 'POST', path: lockPath(name, 'hold-as'), body: JSON.stringify({ owner }) };
}

/**
 * A request to release the detached hold of an owner.
 * @param {string} name
 * @param {string} owner
 * @returns {Call}
 */
export function releaseAs(name, owner) {
  return { method: 'POST', path: lockPath(name, 'release-as'), body: JSON.stringify({ owner }) };
}

/**
 * Reads the answer to a request for a detached hold.
 * @param {any} answer
 * @returns {DetachedHold}
 */
export function detachedOf({ name, owner, mode, fence, left_ms: leftMs }) {
  return { name, owner, mode, fence: fence === 0n ? null : fence, leftMs };
}

/**
 * Parses JSON with fences as `bigint`: a JavaScript number has 53 bits, a fence has 63.
 * @param {string} text
 * @returns {any}
 */
export function parse(text) {
  // Strings are matched too, so that digits in them are left alone.
  const quoted = text.replace(/"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g, (token) =>
    /^-?\d{16,}$/.test(token) ? `"${token}"` : token,
  );
  return JSON.parse(quoted, (key, value) => (key === 'fence' && /^\d+$/.test(String(value)) ? BigInt(value) : value));
}

/**
 * Reads the answer to a keep-alive, as far as it concerns one hold: the validity, or the reason for which the hold was lost.
 * @param {any} answer
 * @param {string} hold
 * @returns {{ validForMs: number } | { lost: string }}
 */
export function alive(answer, hold) {
  for (const one of answer.lost) if (one.hold === hold) return { lost: String(one.reason) };
  if (answer.valid_for_ms === undefined) return { lost: 'its session holds it no longer' };
  return { validForMs: answer.valid_for_ms };
}

/**
 * The purpose that carries a candidate's value: the same JSON as the Rust library writes and reads.
 * @param {string} value
 * @param {string} owner
 */
export function purposeOf(value, owner) {
  const tag = (/** @type {string} */ holder) => JSON.stringify({ holder, host: '', pid: 0, since_ms: 0, metadata: { value } });
  const text = [...tag(owner)].length > LONGEST_PURPOSE ? tag('') : tag(owner);
  const length = [...text].length;
  if (length > LONGEST_PURPOSE) {
    const own = [...value].length;
    throw new TypeError(`the value of a candidate has ${own} characters: at most about ${LONGEST_PURPOSE - (length - own)} are allowed`);
  }
  return text;
}

/**
 * The leader, given the lock of the election; `null` if there is none.
 * @param {LockState} lock
 * @returns {Leader | null}
 */
export function leaderOf(lock) {
  const holder = lock.holders[0];
  if (holder === undefined) return null;
  let value = holder.purpose;
  try {
    const carried = JSON.parse(holder.purpose)?.metadata?.value;
    if (typeof carried === 'string') value = carried;
  } catch {
    // Any other lock can be observed, too.
  }
  return { value, fence: holder.fence ?? 0n, owner: holder.owner };
}

/**
 * Whether a response means that another attempt, perhaps at another daemon, may succeed.
 * @param {number} status
 */
export function isRetryable(status) {
  return status === 408 || status >= 500;
}

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
  constructor(count, first, waitMs, retryTimeoutMs) {
    this.endpoint = first;
    /** @private */
    this.count = count;
    /** @private */
    this.waitMs = waitMs;
    /** @private */
    this.retryTimeoutMs = retryTimeoutMs;
    /** @private */
    this.began = read();
    /** @private */
    this.tried = 0;
    /** @private @type {import('./clock.js').Reading | undefined} */
    this.failingSince = undefined;
    /** @private @type {Set<number>} */
    this.tlsFailures = new Set();
  }

  /**
   * Notes a failed attempt. Returns the pause before the next one, in milliseconds; throws the error if the client gives up.
   * @param {unknown} failure
   * @param {import('./clock.js').Reading} sent
   * @returns {number}
   */
  failed(failure, sent) {
    // A request that waited for long did reach a daemon.
    if (this.failingSince === undefined || since(sent) > this.retryTimeoutMs) this.failingSince = read();
    if (isTlsFailure(failure)) this.tlsFailures.add(this.endpoint);
    this.tried += 1;
    if (this.tlsFailures.size === this.count) throw unreachable(failure, true);
    do this.endpoint = (this.endpoint + 1) % this.count;
    while (this.tlsFailures.has(this.endpoint));
    if (this.tried % this.count !== 0) return 0;
    const rounds = this.tried / this.count;
    if (rounds > 1 && since(this.failingSince) >= this.retriesFor()) throw unreachable(failure, false);
    return Math.min(50 * 2 ** Math.min(rounds, 5), 1000) * (0.5 + Math.random() / 2);
  }

  /** @private */
  retriesFor() {
    if (this.waitMs === undefined || this.failingSince === undefined) return this.retryTimeoutMs;
    const rest = this.waitMs - (since(this.began) - since(this.failingSince));
    return Math.min(Math.max(rest, SHORTEST_RETRY_TIMEOUT_MS), this.retryTimeoutMs);
  }
}
