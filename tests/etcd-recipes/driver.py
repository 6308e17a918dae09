"""Runs the recipes of etcd's clients for locks and elections, the same cases against etcd and against three daemons.

    driver.py FOLDER-OF-CLIENTS LOCKKEEPER-PROGRAM

It prints a table of clients, cases and servers. A cell is `ok`, `FAILED`, or `-` if the client has no such operation, or
the case is about lockkeeper alone.
"""

import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

from contenders import STARTED, clients, safe
from servers import LONG_S, Etcd, Lockkeeper, until

# A lease that ends during the test, and one that does not.
SHORT_TTL_S, LONG_TTL_S = 2, 60


def lock_name(client, case):
    # python-etcd3 puts this before the names of its locks.
    return f"/locks/{safe(client.name)}-{safe(case)}"


def acquire_and_release(client, server, name):
    one = client.start(server.endpoints)
    one.lock(name)
    assert one.held() > 0, "no fence"
    one.unlock()


def two_exclude_each_other(client, server, name):
    one, two = client.start(server.endpoints), client.start(server.endpoints)
    one.lock(name)
    one.held()
    two.lock(name)
    two.not_held()
    one.unlock()
    two.held()
    two.unlock()


def try_lock(client, server, name):
    one, two = client.start(server.endpoints), client.start(server.endpoints)
    one.lock(name)
    one.held()
    two.send("try", name, 0)
    two.expect("busy")
    one.unlock()
    two.send("try", name, 0)
    two.held()
    two.unlock()


def waiter_gives_up(client, server, name):
    one, two, three = (client.start(server.endpoints) for _ in range(3))
    one.lock(name)
    one.held()
    if "cancel" in client.can:
        two.lock(name)
        two.not_held()
        two.cancel()
    else:
        two.send("try", name, 1)
        two.expect("busy")
    one.unlock()
    three.lock(name)
    three.held()
    three.unlock()


def lease_is_revoked(client, server, name):
    one, two = client.start(server.endpoints), client.start(server.endpoints)
    one.lock(name)
    first = one.held()
    two.lock(name)
    two.not_held()
    one.revoke()
    assert two.held() > first, "the fence does not rise"
    two.unlock()


def lease_expires(client, server, name):
    one, two = client.start(server.endpoints, SHORT_TTL_S), client.start(server.endpoints)
    one.lock(name)
    first = one.held()
    two.lock(name)
    one.kill()
    assert two.held() > first, "the fence does not rise"
    two.unlock()


def election(client, server, name):
    one, two, three = (client.start(server.endpoints) for _ in range(3))
    one.campaign(name, "one")
    one.leads()
    three.observe(name)
    three.observes("one")
    two.campaign(name, "two")
    if "proclaim" in client.can:
        one.proclaim("changed")
        three.observes("changed")
    one.resign()
    two.leads()
    three.observes("two")
    two.resign()


def fences_rise(client, server, name):
    fences = []
    contenders = [client.start(server.endpoints) for _ in range(3)]
    for _ in range(2):
        for one in contenders:
            one.lock(name)
        waiting = list(contenders)
        while waiting:
            one = next_holder(waiting)
            waiting.remove(one)
            fences.append(one.fence)
            one.unlock()
    assert fences == sorted(set(fences)), f"fences do not rise: {fences}"


def next_holder(waiting):
    """The contender that gets the lock next."""

    def holder():
        for one in waiting:
            if said := one.next({"held"}, 0.05):
                one.fence = int(said[1])
                return one
        return None

    return until("the next holder", holder)


def mixed_with_other_protocols(client, server, name):
    path = f"/v1/locks/{urllib.parse.quote(name, safe='')}"
    fences = []
    one = client.start(server.endpoints)
    for member in range(3):
        one.lock(name)
        fences.append(one.held())
        assert server.http(f"{path}/acquire", {}, member) is None, "HTTP gets the lock, too"
        native = subprocess.Popen(
            [server.program, "run", name, "--on", f"lockkeeper://{server.clients[member]}", "--"]
            + ["sh", "-c", "echo $LOCKKEEPER_FENCE; read line; true"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        one.unlock()
        fences.append(int(native.stdout.readline()))
        one.lock(name)
        one.not_held()
        native.communicate("\n", timeout=LONG_S)
        fences.append(one.held())
        one.unlock()
        hold = until("HTTP gets the lock", lambda: server.http(f"{path}/acquire", {"wait_ms": 1000}, member))
        fences.append(hold["fence"])
        assert server.http(f"{path}/release", {"hold": hold["hold"]}, member)["released"]
    assert fences == sorted(set(fences)), f"fences do not rise: {fences}"


CASES = [
    ("acquire and release", None, acquire_and_release),
    ("two exclude each other", None, two_exclude_each_other),
    ("try", "try", try_lock),
    ("a waiter gives up", None, waiter_gives_up),
    ("the lease is revoked", None, lease_is_revoked),
    ("the lease expires", None, lease_expires),
    ("election", "elect", election),
    ("fences rise", None, fences_rise),
]
MIXED = "mixed with run and HTTP"
HOLDING, WAITING = "a member dies, holding", "a member dies, waiting"


class Results:
    """The result of each case."""

    def __init__(self):
        self.cells, self.why = {}, []

    def run(self, client, case, server, body):
        began = time.monotonic()
        try:
            body()
            self.cells[client.name, case, server.name] = "ok"
        except Exception as error:  # noqa: BLE001 - it is in the table
            self.cells[client.name, case, server.name] = "FAILED"
            self.why.append(f"{client.name}, {case}, {server.name}: {type(error).__name__}: {error}")
        print(f"{client.name}, {case}, {server.name}: {time.monotonic() - began:.1f} s", file=sys.stderr)

    def table(self, all_clients, servers):
        cases = [case for case, _, _ in CASES] + [MIXED, HOLDING, WAITING]
        columns = [(client.name, server.name) for client in all_clients for server in servers]
        rows = [["", *(f"{client} / {server}" for client, server in columns)]]
        for case in cases:
            rows.append([case, *(self.cells.get((client, case, server), "-") for client, server in columns)])
        widths = [max(len(row[column]) for row in rows) for column in range(len(columns) + 1)]
        return "\n".join(" | ".join(cell.ljust(width) for cell, width in zip(row, widths)) for row in rows)


def run_cases(results, client, server):
    for case, needs, body in CASES:
        if needs is None or needs in client.can:
            results.run(client, case, server, lambda: body(client, server, lock_name(client, case)))
    if isinstance(server, Lockkeeper):
        name = lock_name(client, MIXED)
        results.run(client, MIXED, server, lambda: mixed_with_other_protocols(client, server, name))


# The index of the member that dies, and the time to live of the leases there.
DEAD, DEAD_TTL_S = 2, 10


def at_dead_member(client, server, name, holds):
    """A contender that requests a lock by a lease at the member that will die.

    A client with several endpoints chooses one of them for its lease, so contenders are started until one has a lease there.
    etcdctl and node's client show the lease of a held lock only: where they wait, they know one endpoint.
    """
    dead = server.endpoints[DEAD]
    others = [at for at in server.endpoints if at != dead] if client.several else []
    for _ in range(60):
        one = client.start([dead, *others], DEAD_TTL_S)
        if not one.lease and not holds:
            one.kill()
            one = client.start([dead], DEAD_TTL_S)
        elif not one.lease and client.several:
            one.lock(name)
            one.fence = one.held()
        # The number of a lease has that of its member in its upper bits.
        if one.lease and one.lease >> 31 != DEAD + 1:
            if hasattr(one, "fence"):
                one.unlock()
            one.kill()
            continue
        if not hasattr(one, "fence"):
            one.lock(name)
        return one
    raise AssertionError("no lease lives at the member")


def prepare_holding(client, server):
    name = lock_name(client, HOLDING)
    one = at_dead_member(client, server, name, holds=True)
    fence = getattr(one, "fence", None) or one.held()
    two = client.start(server.endpoints[:1])
    two.lock(name)
    two.not_held()
    # Holds that are older than 0.1 s are recorded; `not_held` took longer.
    return one, two, fence


def check_holding(client, one, two, fence):
    if client.several:
        # The lease lives on at another member. The client keeps it alive there and releases the lock.
        two.not_held()
        one.unlock()
    # A client of one endpoint is cut off; its lease ends.
    assert two.held() > fence, "the fence does not rise"
    two.unlock()


def prepare_waiting(client, server):
    name = lock_name(client, WAITING)
    one = client.start(server.endpoints[:1])
    one.lock(name)
    fence = one.held()
    two = at_dead_member(client, server, name, holds=False)
    two.not_held()
    return one, two, fence, name


def check_waiting(client, server, one, two, fence, name):
    two.not_held()
    one.unlock()
    # The wait ends with the member, with an error, or the client goes on by itself. The program calls again.
    try:
        said = two.next({"held", "failed"}, 5)
    except AssertionError:
        said = None
    if said is None or said[0] == "failed":
        two.kill()
        two = client.start(server.endpoints[:1])
        two.lock(name)
        said = ["held", two.held()]
    assert int(said[1]) > fence, "the fence does not rise"


def member_dies(results, all_clients, server):
    """One death for all clients: each has a holder and a waiter at the member."""
    prepared, threads = {}, []

    def prepare(client):
        def holding():
            prepared[client.name, HOLDING] = prepare_holding(client, server)

        def waiting():
            prepared[client.name, WAITING] = prepare_waiting(client, server)

        results.run(client, HOLDING, server, holding)
        results.run(client, WAITING, server, waiting)

    def check(client):
        if held := prepared.get((client.name, HOLDING)):
            results.run(client, HOLDING, server, lambda: check_holding(client, *held))
        if waits := prepared.get((client.name, WAITING)):
            results.run(client, WAITING, server, lambda: check_waiting(client, server, *waits))

    for step in (prepare, check):
        threads = [threading.Thread(target=step, args=(client,)) for client in all_clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if step is prepare:
            server.kill(DEAD)


def main():
    tools, program = sys.argv[1:3]
    only = sys.argv[3:]
    all_clients = [client for client in clients(tools) if not only or client.name in only]
    results = Results()
    with tempfile.TemporaryDirectory() as folder:
        servers = []
        try:
            servers.append(Etcd(folder))
            servers.append(Lockkeeper(folder, program))
            threads = [
                threading.Thread(target=run_cases, args=(results, client, server))
                for client in all_clients
                for server in servers
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            member_dies(results, all_clients, servers[1])
        finally:
            for contender in STARTED:
                contender.kill()
            for server in servers:
                server.stop()
    print(results.table(all_clients, servers))
    for why in results.why:
        print(why)
    sys.exit(1 if results.why else 0)


main()
