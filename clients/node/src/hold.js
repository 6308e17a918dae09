// A hold that timers keep alive.

import { setTimeout as sleep } from 'node:timers/promises';
import { read } from './clock.js';
import { LockkeeperError, LostError, UnreachableError } from './errors.js';
import { LONGEST_SLEEP_MS, Lease } from './lease.js';
import { alive, endSession, isRetryable, keepAlive, release } from './wire.js';

/** A hold on a lock, kept alive until it is released or lost. It keeps the process running. */
export class Hold {
  /** @type {Lease} */
  #lease;
  /** @type {import('./transport.js').Transport} */
  #transport;
  #hold;
  #session;
  #ttlMs;
  #place;
  #released = false;
  #lost = new AbortController();
  #stop = new AbortController();

  /**
   * @internal
   * @param {import('./transport.js').Transport} transport
   * @param {import('./transport.js').Reply} reply
   */
  constructor(transport, { sent, value }) {
    /**
     * The lock's name.
     * @type {string}
     */
    this.name = value.name;
    /**
     * Above the fences of all earlier holders: pass it with every write to the protected resource. `null` for a permit.
     * @type {bigint | null}
     */
    this.fence = value.fence === 0n ? null : value.fence;
    this.#transport = transport;
    this.#hold = /** @type {string} */ (value.hold);
    this.#session = /** @type {string} */ (value.session);
    this.#ttlMs = /** @type {number} */ (value.ttl_ms);
    this.#lease = new Lease(sent, value.valid_for_ms);
    this.#place = transport.preferred;
  }

  /**
   * Aborted when the hold is lost; its reason is a `LostError`.
   * @returns {AbortSignal}
   */
  get signal() {
    return this.#lost.signal;
  }

  /** Whether no other client can hold the lock at this moment. The next moment may differ: only the fence protects the next step. */
  get valid() {
    return this.validForMs > 0;
  }

  /** The time for which the hold is valid without further keep-alives, in milliseconds. */
  get validForMs() {
    return this.#released || this.#lost.signal.aborted ? 0 : this.#lease.left();
  }

  /**
   * Releases the lock. Returns whether it was held until now. May be called again.
   * @returns {Promise<boolean>}
   */
  async release() {
    if (this.#released) return false;
    this.#released = true;
    this.#stop.abort();
    if (this.#lost.signal.aborted) return false;
    const reply = await this.#transport.call(release(this.name, this.#hold));
    endSessionLater(this.#transport, this.#session);
    // If the answer to a release was lost, the repeated one finds nothing to release: the hold was ours, unless its time has passed.
    return reply.value.released || (reply.attempts > 1 && this.#lease.left() > 0);
  }

  /** Throws a `LostError` if the hold was lost. */
  throwIfLost() {
    this.#lost.signal.throwIfAborted();
  }

  /** Releases the lock at the end of an `await using` block, and throws a `LostError` if it was not held until then. */
  async [Symbol.asyncDispose]() {
    if (this.#released) return;
    const held = await this.release();
    this.throwIfLost();
    if (!held) throw new LostError(this.name, 'its session has ended');
  }

  /**
   * Confirms the hold, and starts to keep it alive.
   * @internal
   */
  async start() {
    const start = new Lease(read(), this.#ttlMs);
    // The request may have waited for long, and the validity in its answer counts from an unknown time since then.
    while (!this.#lease.isFresh()) {
      const reason = await this.#sendKeepAlive(this.#ttlMs / 4);
      if (reason !== undefined) throw new LostError(this.name, reason);
      if (start.left() === 0) throw new UnreachableError(`\`${this.name}\` was granted, and no daemon confirms it`, 'unreachable');
    }
    void this.#keepAlive();
  }

  async #keepAlive() {
    while (!this.#released) {
      await this.#sleep(Math.min(this.#lease.renewalIn(), LONGEST_SLEEP_MS));
      if (this.#released) return;
      if (this.#lease.left() === 0) return this.#lose('no keep-alive was answered in time');
      if (this.#lease.renewalIn() > 0) continue;
      const reason = await this.#sendKeepAlive(this.#lease.timeout());
      if (reason !== undefined) return this.#lose(reason);
    }
  }

  /**
   * Sends a keep-alive to one daemon; the next one goes to another daemon if it fails. Returns the reason if the hold is lost.
   * @param {number} timeoutMs
   * @returns {Promise<string | undefined>}
   */
  async #sendKeepAlive(timeoutMs) {
    const sent = read();
    try {
      const answer = alive(await this.#transport.attempt(this.#place, keepAlive(this.#session, timeoutMs)), this.#hold);
      if ('lost' in answer) return answer.lost;
      this.#lease.renew(sent, answer.validForMs);
      return undefined;
    } catch (failure) {
      if (failure instanceof LockkeeperError && !isRetryable(failure.status)) return failure.message;
    }
    this.#place = (this.#place + 1) % this.#transport.endpoints.length;
    await this.#sleep(20);
    return undefined;
  }

  /** @param {number} ms */
  async #sleep(ms) {
    await sleep(ms, undefined, { signal: this.#stop.signal }).catch(() => {});
  }

  /** @param {string} reason */
  #lose(reason) {
    if (!this.#released) this.#lost.abort(new LostError(this.name, reason));
  }
}

/** The leadership, until it is resigned or lost. */
export class Leadership extends Hold {
  /** Resigns, so that the next candidate can lead. Returns whether this candidate led until now. */
  async resign() {
    return this.release();
  }
}

/**
 * Ends a session in the background. If that fails, it ends when its time to live has passed.
 * @param {import('./transport.js').Transport} transport
 * @param {string} session
 */
export function endSessionLater(transport, session) {
  transport.call(endSession(session), { retryTimeoutMs: 0 }).catch(() => {});
}
