// Locks of lockkeeper's daemons. No dependencies, Node 18.18 or later.
//
//     import { Client } from 'lockkeeper';
//
//     await using hold = await new Client('http://127.0.0.1:7422').lock('nightly', { waitMs: 10_000 }).acquire();
//     await store.write(report, { fence: hold.fence, signal: hold.signal });   // the store refuses lower fences
//
// Without `await using`: `await client.lock('nightly').run(async (hold) => { … })`.

export { Client, Election } from './client.js';
export { BusyError, LockkeeperError, LostError, RefusedError, UnreachableError } from './errors.js';
export { Hold, Leadership } from './hold.js';
export { Lock } from './lock.js';

/** @typedef {import('./client.js').ClientOptions} ClientOptions */
/** @typedef {import('./lock.js').LockOptions} LockOptions */
/** @typedef {import('./wire.js').DetachedHold} DetachedHold */
/** @typedef {import('./wire.js').Leader} Leader */
/** @typedef {import('./wire.js').LockState} LockState */
/** @typedef {import('./wire.js').Party} Party */
