// Locks that can be acquired.

import { setTimeout as sleep } from 'node:timers/promises';
import { read, since } from './clock.js';
import { BusyError, LockkeeperError, LostError } from './errors.js';
import { Hold, Leadership, endSessionLater } from './hold.js';
import { LONGEST_WAIT_MS, acquire, detachedOf, holdAs, keepAlive, newSession } from './wire.js';

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
export class Lock {
  /**
   * @internal
   * @param {import('./transport.js').Transport} transport
   * @param {string} owner
   * @param {string} name
   * @param {import('./wire.js').Mode} mode
   * @param {LockOptions} options
   * @param {new (transport: import('./transport.js').Transport, reply: import('./transport.js').Reply) => H} kind
   */
  constructor(transport, owner, name, mode, options, kind) {
    /** @private */
    this.transport = transport;
    /** @private */
    this.owner = owner;
    /** @private */
    this.mode = mode;
    /** @private */
    this.options = options;
    /** @private */
    this.kind = kind;
    /** The lock's name. */
    this.name = name;
  }

  /**
   * Waits for the lock. Throws a `BusyError` if it was not free in time, and the signal's reason if the signal is aborted.
   * @param {{ signal?: AbortSignal, waitMs?: number }} [options] override those of the lock
   * @returns {Promise<H>}
   */
  async acquire(options = {}) {
    const { waitMs, signal } = { ...this.options, ...options };
    const began = read();
    const left = () => (waitMs === undefined ? undefined : Math.max(waitMs - since(began), 0));
    for (;;) {
      // The session comes first: every daemon can forward a request of a session, so that it can be sent again through any of them.
      const created = await this.transport.call(newSession(this.ttlMs(), this.owner), { waitMs: left(), signal });
      const session = created.value.session;
      try {
        const hold = new this.kind(this.transport, await this.acquireBy(session, left, signal));
        await hold.start();
        return hold;
      } catch (error) {
        const over = isOver(error);
        // Also if the wait was cancelled: the request may have been granted meanwhile.
        if (!over) endSessionLater(this.transport, session);
        // A hold that was lost at once was of no use yet; a session may end with its daemon.
        if (!(over || error instanceof LostError) || left() === 0) throw error;
      }
    }
  }

  /**
   * Acquires the lock if it is free; `null` if it is not.
   * @returns {Promise<H | null>}
   */
  async tryAcquire() {
    try {
      return await this.acquire({ waitMs: 0 });
    } catch (error) {
      if (error instanceof BusyError) return null;
      throw error;
    }
  }

  /**
   * Holds the lock for a named owner for `lastsMs`, without a session: no process has to be alive. Waits for the lock as `acquire` does. If
   * the owner has the hold already, the same fence is returned at once, and the deadline moves. `Client.releaseAs` ends it; `ttlMs` does not
   * apply.
   * @param {string} owner
   * @param {number} lastsMs
   * @param {{ signal?: AbortSignal, waitMs?: number }} [options] override those of the lock
   * @returns {Promise<import('./wire.js').DetachedHold>}
   */
  async holdAs(owner, lastsMs, options = {}) {
    const { waitMs, signal } = { ...this.options, ...options };
    const began = read();
    const left = () => (waitMs === undefined ? undefined : Math.max(waitMs - since(began), 0));
    for (;;) {
      const wait = Math.min(left() ?? LONGEST_WAIT_MS, LONGEST_WAIT_MS);
      const call = holdAs(this.name, this.mode, owner, lastsMs, this.options.purpose ?? '', wait);
      try {
        return detachedOf((await this.transport.call(call, { waitMs: left(), signal })).value);
      } catch (error) {
        if (!isWithdrawn(error) || (left() ?? 1) === 0) throw error;
      }
    }
  }

  /**
   * The same if the lock is free, or if the owner has it already; `null` otherwise.
   * @param {string} owner
   * @param {number} lastsMs
   * @returns {Promise<import('./wire.js').DetachedHold | null>}
   */
  async tryHoldAs(owner, lastsMs) {
    try {
      return await this.holdAs(owner, lastsMs, { waitMs: 0 });
    } catch (error) {
      if (error instanceof BusyError) return null;
      throw error;
    }
  }

  /**
   * Runs a function under the lock. Its argument's `signal` is aborted if the hold is lost, and the function should end then. Throws a
   * `LostError` in that case.
   * @template T
   * @param {(hold: H) => Promise<T> | T} work
   * @returns {Promise<T>}
   */
  async run(work) {
    const hold = await this.acquire();
    try {
      const result = await work(hold);
      await hold[Symbol.asyncDispose]();
      return result;
    } catch (error) {
      // An error of the function itself is thrown, unless the loss has caused it.
      const lost = hold.signal.aborted && (error === hold.signal.reason || (error instanceof Error && error.name === 'AbortError'));
      await hold.release().catch(() => {});
      throw lost ? hold.signal.reason : error;
    }
  }

  /** @private */
  ttlMs() {
    return this.options.ttlMs ?? 30_000;
  }

  /**
   * Waits for the lock by a session, which is kept alive meanwhile.
   * @private
   * @param {string} session
   * @param {() => number | undefined} left
   * @param {AbortSignal | undefined} signal
   */
  async acquireBy(session, left, signal) {
    const ended = new AbortController();
    const finished = new AbortController();
    const cancel = () => ended.abort(signal?.reason);
    signal?.addEventListener('abort', cancel, { once: true });
    void this.keepAlive(session, ended, finished.signal);
    try {
      for (;;) {
        const waitMs = Math.min(left() ?? LONGEST_WAIT_MS, LONGEST_WAIT_MS);
        const call = acquire(this.name, this.mode, session, this.options.purpose ?? '', waitMs);
        try {
          return await this.transport.call(call, { waitMs: left(), signal: ended.signal });
        } catch (error) {
          if (!isWithdrawn(error) || (left() ?? 1) === 0) throw error;
        }
      }
    } finally {
      finished.abort();
      signal?.removeEventListener('abort', cancel);
    }
  }

  /**
   * Keeps a session alive while it waits. If the session ends, the waiting request ends with that error.
   * @private
   * @param {string} session
   * @param {AbortController} ended
   * @param {AbortSignal} finished
   */
  async keepAlive(session, ended, finished) {
    const pause = Math.min(this.ttlMs() / 4, 3000);
    for (let place = this.transport.preferred; ; ) {
      await sleep(pause, undefined, { signal: finished }).catch(() => {});
      if (finished.aborted) return;
      try {
        await this.transport.attempt(place, keepAlive(session, pause));
      } catch (error) {
        if (isOver(error)) return ended.abort(error);
        place = (place + 1) % this.transport.endpoints.length;
      }
    }
  }
}

/**
 * Whether a request is to be made again: the longest wait has passed, or a broken connection has withdrawn it.
 * @param {unknown} error
 */
function isWithdrawn(error) {
  return error instanceof LockkeeperError && ['busy', 'given_up'].includes(error.code);
}

/**
 * Whether the session of a request has ended.
 * @param {unknown} error
 */
function isOver(error) {
  return error instanceof LockkeeperError && error.code === 'no_such_session';
}

/**
 * A candidate: `acquire` waits until it is elected.
 * @typedef {Lock<Leadership>} Candidate
 */
