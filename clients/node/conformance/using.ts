// Checks the types as a TypeScript program sees them, and `await using`: scripts/clients compiles and runs it.

import { Client, type Hold, LostError } from 'lockkeeper';

const client = new Client(process.env['LOCKKEEPER_URL'] ?? 'http://127.0.0.1:7422');
let kept: Hold | undefined;
{
  await using hold = await client.lock('using', { waitMs: 60_000 }).acquire();
  const fence: bigint | null = hold.fence;
  if (fence === null || !hold.valid || hold.signal.aborted) throw new Error('the lock is not held');
  kept = hold;
}
if (kept.valid || (await client.describe('using')).holders.length > 0) throw new Error('the block has not released the lock');
try {
  await using hold = await client.lock('using', { waitMs: 60_000 }).acquire();
  await client.forceRelease(hold.name);
  await new Promise((resolve) => hold.signal.addEventListener('abort', resolve));
  throw new Error('unreachable without a loss');
} catch (error) {
  // The error of the block and the loss, or the loss alone.
  const lost = error instanceof LostError || (error as { error?: unknown }).error instanceof LostError;
  if (!lost) throw error;
}
client.close();
console.log('await using: passes');
