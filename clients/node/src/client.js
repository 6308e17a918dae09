// The client.

import { setTimeout as sleep } from 'node:timers/promises';
import { LockkeeperError } from './errors.js';
import { Hold, Leadership } from './hold.js';
import { Lock } from './lock.js';
import { Transport } from './transport.js';
import {
  defaultOwner, detachedOf, endpoints, findDetached, headers, isRetryable, leaderOf, lockPath, parse, purposeOf, releaseAs,
} from './wire.js';

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
  constructor(url = 'http://127.0.0.1:7422', options = {}) {
    const { token, owner, insecureNoTls, ...tls } = options;
    /** @private */
    this.owner = owner ?? defaultOwner();
    /** @private */
    this.transport = new Transport(endpoints(url, token, insecureNoTls ?? false), headers(token), tls);
  }

  /** Closes idle connections. Holds continue. */
  close() {
    this.transport.close();
  }

  /**
   * The lock, for one holder at a time.
   * @param {string} name
   * @param {import('./lock.js').LockOptions} [options]
   * @returns {Lock}
   */
  lock(name, options = {}) {
    return new Lock(this.transport, this.owner, name, { mode: 'exclusive' }, options, Hold);
  }

  /**
   * The lock in shared mode, for several holders at a time.
   * @param {string} name
   * @param {import('./lock.js').LockOptions} [options]
   * @returns {Lock}
   */
  shared(name, options = {}) {
    return new Lock(this.transport, this.owner, name, { mode: 'shared' }, options, Hold);
  }

  /**
   * One of `permits` permits.
   * @param {string} name
   * @param {number} permits
   * @param {import('./lock.js').LockOptions} [options]
   * @returns {Lock}
   */
  permit(name, permits, options = {}) {
    return new Lock(this.transport, this.owner, name, { mode: 'permit', permits }, options, Hold);
  }

  /**
   * The election of that name. Its leader is the holder of the lock of that name.
   * @param {string} name
   * @returns {Election}
   */
  election(name) {
    return new Election(this, this.transport, this.owner, name);
  }

  /**
   * The detached hold of an owner on the lock; `null` if it has none. See `Lock.holdAs`.
   * @param {string} name
   * @param {string} owner
   * @returns {Promise<import('./wire.js').DetachedHold | null>}
   */
  async detached(name, owner) {
    try {
      return detachedOf((await this.transport.call(findDetached(name, owner))).value);
    } catch (error) {
      if (error instanceof LockkeeperError && error.code === 'conflict') return null;
      throw error;
    }
  }

  /**
   * Releases the detached hold of an owner. Returns whether it had one; `false` also if the answer to a first attempt was lost.
   * @param {string} name
   * @param {string} owner
   * @returns {Promise<boolean>}
   */
  async releaseAs(name, owner) {
    return (await this.transport.call(releaseAs(name, owner))).value.released;
  }

  /**
   * Every lock that is held or waited for.
   * @param {string} prefix
   * @returns {Promise<import('./wire.js').LockState[]>}
   */
  async locks(prefix = '') {
    return this.get(`/v1/locks?prefix=${encodeURIComponent(prefix)}`);
  }

  /**
   * The holders and the waiters of a lock.
   * @param {string} name
   * @returns {Promise<import('./wire.js').LockState>}
   */
  async describe(name) {
    return this.get(lockPath(name));
  }

  /**
   * The holders that the first waiter waits for, and the holders that those wait for in turn.
   * @param {string} name
   * @returns {Promise<{ chain: { waiter: string, lock: string, holder: string }[], deadlock: boolean }>}
   */
  async why(name) {
    return this.get(lockPath(name, 'why'));
  }

  /**
   * Revokes the holds on the lock. Their clients are notified. Returns the released acquisitions.
   * @param {string} name
   * @returns {Promise<string[]>}
   */
  async forceRelease(name) {
    return (await this.transport.call({ method: 'POST', path: lockPath(name, 'force-release'), body: '{}' })).value.released;
  }

  /**
   * The members of the cluster.
   * @returns {Promise<Record<string, unknown>[]>}
   */
  async members() {
    return this.get('/v1/members');
  }

  /**
   * The state of the daemon and of its member.
   * @returns {Promise<Record<string, unknown>>}
   */
  async status() {
    return this.get('/v1/status');
  }

  /**
   * The name of the token, and what it allows.
   * @returns {Promise<Record<string, unknown>>}
   */
  async whoami() {
    return this.get('/v1/whoami');
  }

  /**
   * The state of each lock with that prefix, and again whenever it changes. Ends when the daemon ends the stream.
   * @param {string} prefix
   * @param {{ signal?: AbortSignal }} [options]
   * @returns {AsyncGenerator<import('./wire.js').LockState, void, void>}
   */
  async *watch(prefix = '', { signal } = {}) {
    for await (const lock of this.events(prefix, signal)) if (lock !== null) yield lock;
  }

  /**
   * The events of a watch stream; `null` once it is open.
   * @internal
   * @param {string} prefix
   * @param {AbortSignal | undefined} signal
   * @returns {AsyncGenerator<import('./wire.js').LockState | null, void, void>}
   */
  async *events(prefix, signal) {
    const path = `/v1/watch?prefix=${encodeURIComponent(prefix)}`;
    for await (const line of this.transport.lines(path, this.transport.preferred, signal)) {
      if (line === null) yield null;
      else if (line.startsWith('data: ')) yield parse(line.slice('data: '.length));
    }
  }

  /**
   * @private
   * @param {string} path
   * @returns {Promise<any>}
   */
  async get(path) {
    return (await this.transport.call({ method: 'GET', path })).value;
  }
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
  constructor(client, transport, owner, name) {
    /** @private */
    this.client = client;
    /** @private */
    this.transport = transport;
    /** @private */
    this.owner = owner;
    /** The name of the election. */
    this.name = name;
  }

  /**
   * A candidate with a value that observers see, such as an address.
   * @param {string} value
   * @param {Omit<import('./lock.js').LockOptions, 'purpose'>} [options]
   * @returns {Lock<Leadership>}
   */
  campaign(value, options = {}) {
    const purpose = purposeOf(value, this.owner);
    return new Lock(this.transport, this.owner, this.name, { mode: 'exclusive' }, { ...options, purpose }, Leadership);
  }

  /**
   * The current leader; `null` if there is none.
   * @returns {Promise<import('./wire.js').Leader | null>}
   */
  async leader() {
    return leaderOf(await this.client.describe(this.name));
  }

  /**
   * The current leader, and then each new one; `null` while there is none. It continues through another daemon if one dies.
   * @param {{ signal?: AbortSignal }} [options]
   * @returns {AsyncGenerator<import('./wire.js').Leader | null, void, void>}
   */
  async *observe({ signal } = {}) {
    /** @type {import('./wire.js').Leader | null | undefined} */
    let last;
    for (let failures = 0; ; ) {
      try {
        for await (const lock of this.client.events(this.name, signal)) {
          // The stream is open before the first look: no change falls between the two.
          failures = 0;
          const shown = lock ?? (await this.client.describe(this.name));
          if (shown.name !== this.name) continue;
          const leader = leaderOf(shown);
          if (last !== undefined && leader?.fence === last?.fence && leader?.value === last?.value) continue;
          last = leader;
          yield leader;
        }
      } catch (failure) {
        signal?.throwIfAborted();
        failures += 1;
        const refused = failure instanceof LockkeeperError && failure.status !== 0 && !isRetryable(failure.status);
        if (refused || failures > 8 * this.transport.endpoints.length) throw failure;
      }
      this.transport.preferred = (this.transport.preferred + 1) % this.transport.endpoints.length;
      await sleep(Math.min(50 * 2 ** failures, 1000));
    }
  }
}
