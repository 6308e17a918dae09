// Tests without a daemon: fences, URLs, requests, attempts, leases.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import os from 'node:os';
import { test } from 'node:test';
import { read } from '../src/clock.js';
import { errorOf, isTlsFailure } from '../src/errors.js';
import { BusyError, Client, RefusedError, UnreachableError } from '../src/index.js';
import { Lease } from '../src/lease.js';
import * as wire from '../src/wire.js';
import { Attempts, alive, leaderOf, parse, purposeOf } from '../src/wire.js';

test('a fence keeps its 63 bits', () => {
  const { fence, name, n } = parse('{"fence":9223372036854775807,"name":"\\"fence\\":1234567890123456789","n":12}');
  assert.equal(fence, 9223372036854775807n);
  assert.equal(name, '"fence":1234567890123456789');
  assert.equal(n, 12);
  assert.equal(parse('{"fence":0}').fence, 0n);
  assert.equal(parse('[{"holders":[{"fence":389873259702648833}]}]')[0].holders[0].fence, 389873259702648833n);
});

test('validity counts from sending, on a clock that may be slewed and that counts suspend', (context) => {
  const lease = new Lease(read(), 12_000);
  assert.ok(lease.left() > 10_000 && lease.left() < 11_000);
  assert.ok(lease.isFresh());
  const uptime = os.uptime;
  // The monotonic clock stands still in suspend.
  context.mock.method(os, 'uptime', () => uptime() + 11);
  assert.equal(lease.left(), 0);
  assert.equal(lease.renewalIn(), 0);
});

test('a hold that its session does not list is lost', () => {
  const answer = { lost: [{ hold: '1-2', name: 'a', reason: 'revoked' }], valid_for_ms: 500 };
  assert.deepEqual(alive(answer, '1-2'), { lost: 'revoked' });
  assert.deepEqual(alive(answer, '1-1'), { validForMs: 500 });
  assert.ok('lost' in alive({ lost: [] }, '1-1'));
});

test('every daemon is tried before a pause, and one with which TLS fails is not tried again', () => {
  const attempts = new Attempts(3, 1, undefined, 10_000);
  const asked = [];
  for (let count = 0; count < 6; count += 1) {
    asked.push(attempts.endpoint);
    assert.equal(attempts.failed(new Error('refused'), read()) > 0, count % 3 === 2);
  }
  assert.deepEqual(asked, [1, 2, 0, 1, 2, 0]);
  const failure = Object.assign(new Error('unknown authority'), { code: 'SELF_SIGNED_CERT_IN_CHAIN' });
  attempts.failed(failure, read());
  assert.equal(attempts.endpoint, 2);
  attempts.failed(failure, read());
  assert.equal(attempts.endpoint, 0);
  assert.throws(() => attempts.failed(failure, read()), (error) => error instanceof UnreachableError && error.code === 'tls');
  assert.equal(isTlsFailure(Object.assign(new Error(), { code: 'ECONNRESET' })), false);
});

test('the value of a candidate is that of the Rust library', () => {
  const purpose = purposeOf('a:80', 'me');
  assert.equal(purpose, '{"holder":"me","host":"","pid":0,"since_ms":0,"metadata":{"value":"a:80"}}');
  const holder = { purpose, fence: 7n, owner: 'me' };
  assert.deepEqual(leaderOf({ holders: [holder] }), { value: 'a:80', fence: 7n, owner: 'me' });
  assert.equal(leaderOf({ holders: [{ ...holder, purpose: 'plain' }] }).value, 'plain');
  assert.equal(leaderOf({ holders: [] }), null);
  assert.throws(() => purposeOf('v'.repeat(250), 'me'), /250 characters/);
});

// The file is also that of the other clients, and the daemon's tests read it.
test('requests do not change', () => {
  const name = 'a/b é';
  const owner = 'web-3';
  const acquire = (mode) => {
    const call = wire.acquire(name, mode, '1a', 'backup', 2000);
    const { request, ...body } = JSON.parse(call.body);
    assert.match(request, /^[0-9a-f-]{36}$/);
    return { ...call, body: JSON.stringify({ ...body, request: 'r1' }) };
  };
  const permit = { mode: 'permit', permits: 3 };
  const requests = {
    'new session': wire.newSession(30_000, owner),
    'keep-alive': wire.keepAlive('1a', 1000),
    'end session': wire.endSession('1a'),
    'acquire exclusive': acquire({ mode: 'exclusive' }),
    'acquire shared': acquire({ mode: 'shared' }),
    'acquire permit': acquire(permit),
    release: wire.release(name, '1a-4'),
    'hold as': wire.holdAs(name, permit, owner, 7000, 'kernel', 2000),
    detached: wire.findDetached(name, owner),
    'release as': wire.releaseAs(name, owner),
  };
  const sent = Object.entries(requests).map(([key, { method, path, body }]) => [key, { method, path, body: body === undefined ? null : JSON.parse(body) }]);
  const golden = new URL('../../conformance/requests.json', import.meta.url);
  assert.deepEqual(Object.fromEntries(sent), JSON.parse(readFileSync(golden, 'utf8')));
});

test('a token is sent in plain text only on this machine', () => {
  for (const url of ['http://127.0.0.1:1', 'http://localhost', 'http://[::1]:1', 'https://example.org']) new Client(url, { token: 'secret' });
  for (const url of ['http://10.0.0.1:7422', 'http://example.org', 'http://localhost.example.org', 'http://[::]']) {
    assert.throws(() => new Client(['http://127.0.0.1', url], { token: 'secret' }), /unencrypted/);
    new Client(url, { token: 'secret', insecureNoTls: true });
  }
  assert.throws(() => new Client('http://127.0.0.1', { token: 'secret\n' }), /end of a line/);
});

test('no error shows a secret of a URL', () => {
  const urls = ['http://u:s3cr3t@h', 'http://h?token=s3cr3t', 'http://h#s3cr3t', 'http://[s3cr3t', 'lockkeeper://token:s3cr3t@h', 's3cr3t', 'http://h/s3cr3t'];
  for (const url of urls) {
    assert.throws(
      () => new Client(url),
      (error) => error instanceof TypeError && !`${error.stack}${error.cause}`.includes('s3cr3t'),
    );
  }
});

test('errors have types', () => {
  assert.ok(errorOf(409, '{"error":"busy","message":"m"}') instanceof BusyError);
  assert.ok(errorOf(401, '{"error":"no_token","message":"m"}') instanceof RefusedError);
  assert.match(errorOf(502, '<html>').message, /502/);
});
