// HTTP/1.1 connections to the daemons.

import http from 'node:http';
import https from 'node:https';
import { setTimeout as sleep } from 'node:timers/promises';
import { read } from './clock.js';
import { LockkeeperError, errorOf } from './errors.js';
import { ANSWER_TIMEOUT_MS, Attempts, CONNECT_TIMEOUT_MS, RETRY_TIMEOUT_MS, isRetryable, parse } from './wire.js';

// Idle connections that are kept for each daemon.
const MOST_IDLE = 8;
// The longest text of a response that is read.
const LONGEST_RESPONSE = 2 ** 29;
// The daemon sends a line of a watch stream at least every 15 seconds.
const WATCH_TIMEOUT_MS = 60_000;

/**
 * The answer of a daemon: the time at which the answered request was sent, the number of times that it was sent, and its value.
 * @typedef {{ sent: import('./clock.js').Reading, attempts: number, value: any }} Reply
 */

/**
 * Options of a request: the caller's timeout and signal, and the time for which it is repeated.
 * @typedef {{ waitMs?: number | undefined, signal?: AbortSignal | undefined, retryTimeoutMs?: number }} CallOptions
 */

/** Sends requests to the daemons of one cluster. */
export class Transport {
  /**
   * @param {import('./wire.js').Endpoint[]} endpoints
   * @param {Record<string, string>} headers
   * @param {import('node:tls').SecureContextOptions} tls
   */
  constructor(endpoints, headers, tls) {
    this.endpoints = endpoints;
    /** The daemon that answered last. */
    this.preferred = 0;
    /** @private */
    this.headers = headers;
    const options = { keepAlive: true, maxFreeSockets: MOST_IDLE };
    /** @private */
    this.agents = { plain: new http.Agent(options), secure: new https.Agent({ ...options, minVersion: 'TLSv1.2', ...tls }) };
  }

  /**
   * Sends a request, and repeats it through the next daemon while no answer arrives.
   * @param {import('./wire.js').Call} call
   * @param {CallOptions} options
   * @returns {Promise<Reply>}
   */
  async call(call, { waitMs, signal, retryTimeoutMs = RETRY_TIMEOUT_MS } = {}) {
    const attempts = new Attempts(this.endpoints.length, this.preferred, waitMs, retryTimeoutMs);
    for (let count = 1; ; count += 1) {
      const place = attempts.endpoint;
      const sent = read();
      /** @type {number} */
      let pause;
      try {
        const { value, repeated } = await this.exchange(place, call, signal);
        this.preferred = place;
        return { sent, attempts: count + (repeated ? 1 : 0), value };
      } catch (failure) {
        signal?.throwIfAborted();
        if (failure instanceof LockkeeperError && !isRetryable(failure.status)) {
          this.preferred = place;
          throw failure;
        }
        pause = attempts.failed(failure, sent);
      }
      await sleep(pause, undefined, signal === undefined ? {} : { signal }).catch(() => {});
      signal?.throwIfAborted();
    }
  }

  /**
   * Sends a request to one daemon. Throws a `LockkeeperError` for an answer that is an error, and the error of the connection otherwise.
   * @param {number} place
   * @param {import('./wire.js').Call} call
   * @returns {Promise<any>}
   */
  async attempt(place, call) {
    return (await this.exchange(place, call, undefined)).value;
  }

  /**
   * Sends a request to one daemon. Returns also whether it was sent twice.
   * @private
   * @param {number} place
   * @param {import('./wire.js').Call} call
   * @param {AbortSignal | undefined} signal
   */
  async exchange(place, call, signal) {
    signal?.throwIfAborted();
    const timeoutMs = (call.waitMs ?? 0) + (call.answerTimeoutMs ?? ANSWER_TIMEOUT_MS);
    let repeated = false;
    let request = this.open(place, call, timeoutMs, signal);
    let response = await request.response.catch((failure) => {
      // The daemon may have closed an idle connection, which does not mean that it fails.
      if (!request.reused() || isTimeout(failure) || signal?.aborted) throw failure;
      repeated = true;
      request = this.open(place, call, timeoutMs, signal, false);
      return request.response;
    });
    const text = await collect(response);
    request.finish();
    const status = response.statusCode ?? 0;
    if (status >= 300) throw errorOf(status, text);
    return { value: text === '' ? undefined : parse(text), repeated };
  }

  /**
   * Sends a request.
   * @private
   * @param {number} place
   * @param {import('./wire.js').Call} call
   * @param {number} timeoutMs the time until the answer has arrived
   * @param {AbortSignal | undefined} signal
   * @param {boolean} [mayReuse] whether an idle connection may be used
   */
  open(place, call, timeoutMs, signal, mayReuse = true) {
    const { secure, host, port } = /** @type {import('./wire.js').Endpoint} */ (this.endpoints[place]);
    /** @type {Record<string, string | number>} */
    const headers = { ...this.headers };
    if (call.body !== undefined) headers['content-type'] = 'application/json';
    if (call.method === 'POST') headers['content-length'] = Buffer.byteLength(call.body ?? '');
    if (!mayReuse) headers['connection'] = 'close';
    const agent = secure ? this.agents.secure : this.agents.plain;
    const options = { host, port, method: call.method, path: call.path, headers, agent };
    const request = (secure ? https : http).request(mayReuse ? options : { ...options, agent: this.lone(secure) });
    const abort = () => request.destroy(signal?.reason instanceof Error ? signal.reason : new Error('the request was cancelled'));
    const timer = setTimeout(() => request.destroy(new TimeoutError(timeoutMs)), timeoutMs);
    const finish = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', abort);
    };
    signal?.addEventListener('abort', abort, { once: true });
    request.once('socket', (socket) => probe(socket, secure, Math.min(timeoutMs, CONNECT_TIMEOUT_MS)));
    request.once('close', finish);
    /** @type {Promise<http.IncomingMessage>} */
    const response = new Promise((resolve, reject) => {
      request.once('response', resolve);
      // An error after the response, such as an abort, arrives at the reader of the response.
      request.on('error', reject);
    });
    request.end(call.body);
    return { response, finish, reused: () => request.reusedSocket, destroy: () => request.destroy() };
  }

  /**
   * An agent for one request over a connection of its own.
   * @private
   * @param {boolean} secure
   */
  lone(secure) {
    if (!secure) return new http.Agent({ keepAlive: false });
    const { keepAlive: _, ...options } = this.agents.secure.options;
    return new https.Agent({ ...options, keepAlive: false });
  }

  /**
   * The lines of an endless response. The first item is `null`: the stream is open then.
   * @param {string} path
   * @param {number} place
   * @param {AbortSignal | undefined} signal
   * @returns {AsyncGenerator<string | null, void, void>}
   */
  async *lines(path, place, signal) {
    signal?.throwIfAborted();
    const request = this.open(place, { method: 'GET', path }, 2 ** 31 - 1, signal, false);
    try {
      const response = await request.response;
      if (response.statusCode !== 200) throw errorOf(response.statusCode ?? 0, await collect(response));
      response.setTimeout(WATCH_TIMEOUT_MS, () => response.destroy(new TimeoutError(WATCH_TIMEOUT_MS)));
      yield null;
      let rest = '';
      response.setEncoding('utf8');
      for await (const chunk of response) {
        const lines = (rest + chunk).split('\n');
        rest = lines.pop() ?? '';
        if (rest.length > LONGEST_RESPONSE) throw new Error('a line of the stream is too long');
        yield* lines;
      }
    } finally {
      request.finish();
      request.destroy();
    }
  }

  /** Closes the idle connections. */
  close() {
    this.agents.plain.destroy();
    this.agents.secure.destroy();
  }
}

/** No answer arrived in time. */
class TimeoutError extends Error {
  /** @param {number} ms */
  constructor(ms) {
    super(`no answer within ${Math.round(ms)} ms`);
    this.code = 'ETIMEDOUT';
  }
}

/** @param {unknown} failure */
function isTimeout(failure) {
  return failure instanceof TimeoutError;
}

/**
 * Ends a connection that is not established in time, and has the system detect within about 15 seconds that the other machine has vanished.
 * @param {import('node:net').Socket} socket
 * @param {boolean} secure
 * @param {number} timeoutMs
 */
function probe(socket, secure, timeoutMs) {
  socket.setKeepAlive(true, 5000);
  if (!socket.connecting) return;
  const timer = setTimeout(() => socket.destroy(new TimeoutError(timeoutMs)), timeoutMs);
  for (const event of [secure ? 'secureConnect' : 'connect', 'close']) socket.once(event, () => clearTimeout(timer));
}

/**
 * Reads a response to its end.
 * @param {http.IncomingMessage} response
 * @returns {Promise<string>}
 */
async function collect(response) {
  response.setEncoding('utf8');
  let text = '';
  for await (const chunk of response) {
    text += chunk;
    if (text.length > LONGEST_RESPONSE) throw new Error('the response is too long');
  }
  return text;
}
