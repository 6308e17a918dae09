// A contender for locks and elections with node's etcd3, driven over standard input: see driver.py.
//
//     node contender.mjs FOLDER-OF-MODULES TTL ENDPOINT...
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const [modules, ttl, ...hosts] = process.argv.slice(2);
const { Etcd3, EtcdLockFailedError } = createRequire(`${modules}/`)('etcd3');
const client = new Etcd3({ hosts: hosts.map((host) => `http://${host}`) });
const say = (...words) => console.log(...words);
const failed = (error) => say('failed', String(error.message ?? error).replaceAll('\n', ' '));
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

let lock, campaign, cancelled;

// This client does not wait for a lock: it tries, and the program decides when to try again.
async function acquire(name, again) {
  while (!cancelled) {
    lock = client.lock(name).ttl(Number(ttl));
    try {
      await lock.acquire();
      const { kvs } = await client.get(name).exec();
      say('held', kvs[0]?.create_revision ?? 0, await lock.leaseId());
      return;
    } catch (error) {
      if (!(error instanceof EtcdLockFailedError)) return failed(error);
      if (!again) return say('busy');
    }
    await pause(50);
  }
  say('failed cancelled');
}

const commands = {
  lock: (name) => { cancelled = false; acquire(name, true); },
  try: (name) => { cancelled = false; acquire(name, false); },
  cancel: () => { cancelled = true; },
  unlock: async () => { await lock.release(); say('released'); },
  revoke: async () => { await lock.lease.revoke(); say('revoked'); },
  campaign: (name, value) => {
    const mine = campaign = client.election(name, Number(ttl)).campaign(value);
    mine.on('elected', () => say('held', mine.keyRevision));
    mine.on('error', failed);
  },
  proclaim: async (value) => { await campaign.proclaim(value); say('proclaimed'); },
  resign: async () => { await campaign.resign(); say('released'); },
  observe: async (name) => {
    const observer = await client.election(name).observe();
    const tell = () => observer.leader() && say('leader', observer.leader());
    tell();
    observer.on('change', tell);
    observer.on('error', failed);
  },
};

say('ready', 0);
for await (const line of createInterface({ input: process.stdin })) {
  const [command, ...words] = line.split(' ');
  try {
    await commands[command](...words);
  } catch (error) {
    failed(error);
  }
}
process.exit(0);
