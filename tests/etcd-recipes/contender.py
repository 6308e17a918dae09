"""A contender for locks with python-etcd3 or aetcd, driven over standard input: see driver.py.

    contender.py etcd3|aetcd TTL HOST:PORT
"""

import asyncio
import sys
import threading
import time

# The key of python-etcd3's locks begins with this; for aetcd the driver sends whole keys.
PREFIX = "/locks/"


def say(*words):
    print(*words, flush=True)


def failed(error):
    say("failed", type(error).__name__, str(error).replace("\n", " "))


def with_etcd3(ttl, host, port):
    import etcd3

    client = etcd3.client(host=host, port=port)
    lock = None

    def attempt(lock, seconds):
        try:
            return lock.acquire(timeout=seconds)
        except etcd3.exceptions.ConnectionFailedError:
            # UNAVAILABLE: the members change their view. A program calls again.
            time.sleep(0.1)
            return False

    def acquire(lock, seconds):
        try:
            # This version watches without a start revision: with etcd, it misses a release between its attempt and its watch,
            # and would wait forever. So it waits for a while at a time.
            while not attempt(lock, 2 if seconds is None else seconds):
                if seconds is not None:
                    return say("busy")
            # The fence: this client has no other way to get one.
            value, key = client.get(lock.key)
            say("held" if value == lock.uuid else "lost", key.create_revision if key else 0)
        except Exception as error:  # noqa: BLE001 - reported to the driver
            failed(error)

    say("ready", 0)
    for line in sys.stdin:
        command, *words = line.split()
        try:
            if command in ("lock", "try"):
                lock = client.lock(words[0].removeprefix(PREFIX), ttl=ttl)
                seconds = int(words[1]) if command == "try" else None
                threading.Thread(target=acquire, args=(lock, seconds), daemon=True).start()
            elif command == "refresh":
                lock.refresh()
                say("refreshed" if lock.is_acquired() else "lost")
            elif command == "unlock":
                say("released" if lock.release() else "lost")
            elif command == "revoke":
                lock.lease.revoke()
                say("revoked")
        except Exception as error:  # noqa: BLE001
            failed(error)


async def with_aetcd(ttl, host, port):
    import aetcd

    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    client = aetcd.Client(host=host, port=port)
    await client.connect()
    lock, task = None, None

    async def acquire(lock, seconds):
        try:
            say(*(("held", lock.revision) if await lock.acquire(timeout=seconds) else ("busy",)))
        except asyncio.CancelledError:
            say("failed cancelled")
        except Exception as error:  # noqa: BLE001
            failed(error)

    say("ready", 0)
    while line := (await lines.readline()).decode():
        command, *words = line.split()
        try:
            if command in ("lock", "try"):
                lock = client.lock(words[0].encode(), ttl)
                seconds = int(words[1]) if command == "try" else None
                task = asyncio.create_task(acquire(lock, seconds))
            elif command == "cancel":
                task.cancel()
            elif command == "refresh":
                await lock.refresh()
                say("refreshed" if await lock.is_acquired() else "lost")
            elif command == "unlock":
                say("released" if await lock.release() else "lost")
            elif command == "revoke":
                await lock.lease.revoke()
                say("revoked")
        except Exception as error:  # noqa: BLE001
            failed(error)


def main():
    package, ttl, endpoint = sys.argv[1:4]
    host, port = endpoint.split(":")
    if package == "etcd3":
        with_etcd3(int(ttl), host, int(port))
    else:
        asyncio.run(with_aetcd(int(ttl), host, int(port)))


main()
