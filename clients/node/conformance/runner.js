// The runner of this client for the conformance suite: commands in, results out, as JSON lines.

import { readFileSync } from 'node:fs';
import os from 'node:os';
import { createInterface } from 'node:readline';
import { Client, Leadership, LockkeeperError, RefusedError } from '../src/index.js';

const clients = new Map();
const holds = new Map();
const cancels = new Map();

function write(message) {
  process.stdout.write(`${JSON.stringify(message)}\n`);
}

function kindOf(error) {
  if (error instanceof RefusedError) return 'refused';
  if (error instanceof LockkeeperError) return error.code;
  return error.name === 'AbortError' ? 'cancelled' : error.name;
}

function lockOf({ client, lock, mode = 'exclusive', permits, value, wait_ms: waitMs, ttl_ms: ttlMs = 30_000 }) {
  const options = waitMs === undefined ? { ttlMs } : { ttlMs, waitMs };
  const own = clients.get(client);
  if (mode === 'leader') return own.election(lock).campaign(value, options);
  if (mode === 'permit') return own.permit(lock, permits, options);
  return mode === 'shared' ? own.shared(lock, options) : own.lock(lock, options);
}

function stateOf(hold) {
  const { valid, validForMs, signal, fence } = hold;
  return { valid, valid_for_ms: Math.floor(validForMs), lost: signal.aborted, fence: fence === null ? null : String(fence) };
}

function detachedState(hold) {
  if (hold === null) return { found: false };
  const { owner, fence, leftMs } = hold;
  return { found: true, owner, fence: fence === null ? null : String(fence), left_ms: leftMs };
}

function lossOf(hold) {
  return new Promise((resolve) => {
    if (hold.signal.aborted) resolve();
    hold.signal.addEventListener('abort', () => resolve());
  });
}

const commands = {
  open({ client, urls, token, ca, cert, key }) {
    const options = token === undefined ? {} : { token };
    for (const [name, file] of Object.entries({ ca, cert, key })) if (file !== undefined) options[name] = readFileSync(file);
    clients.set(client, new Client(urls, options));
    return {};
  },

  async acquire(command) {
    const cancel = new AbortController();
    cancels.set(command.id, cancel);
    const hold = await lockOf(command).acquire({ signal: cancel.signal });
    holds.set(command.hold, hold);
    return stateOf(hold);
  },

  async try(command) {
    const hold = await lockOf(command).tryAcquire();
    if (hold === null) return { acquired: false };
    holds.set(command.hold, hold);
    return { acquired: true, ...stateOf(hold) };
  },

  cancel({ request }) {
    cancels.get(request).abort();
    return {};
  },

  async release({ hold: name }) {
    const hold = holds.get(name);
    return { held: await (hold instanceof Leadership ? hold.resign() : hold.release()) };
  },

  state({ hold }) {
    return stateOf(holds.get(hold));
  },

  async lost({ hold: name }) {
    const hold = holds.get(name);
    await lossOf(hold);
    return { reason: hold.signal.reason.reason, ...stateOf(hold) };
  },

  // Works under the lock until the hold is lost.
  async work(command) {
    await lockOf(command).run(async (hold) => {
      write({ id: command.id, event: 'entered' });
      await lossOf(hold);
      hold.signal.throwIfAborted();
    });
    return {};
  },

  // Observes an election until its leader has the value; without a value: until there is no leader.
  async observe({ client, lock, value = null }) {
    for await (const leader of clients.get(client).election(lock).observe()) {
      if ((leader?.value ?? null) === value) return { value, fence: leader === null ? null : String(leader.fence) };
    }
  },

  async hold_as(command) {
    return detachedState(await lockOf(command).holdAs(command.owner, command.for_ms));
  },

  async detached({ client, lock, owner }) {
    return detachedState(await clients.get(client).detached(lock, owner));
  },

  async release_as({ client, lock, owner }) {
    return { released: await clients.get(client).releaseAs(lock, owner) };
  },

  // Lets the clock that counts suspend jump, as after a suspend; others and timers do not count it. Returns the state just after it.
  jump({ seconds, hold }) {
    const read = os.uptime;
    os.uptime = () => read() + seconds;
    return stateOf(holds.get(hold));
  },
};

createInterface({ input: process.stdin }).on('line', async (line) => {
  const command = JSON.parse(line);
  try {
    write({ id: command.id, ok: await commands[command.do](command) });
  } catch (error) {
    write({ id: command.id, error: kindOf(error), message: error.message });
  }
});
