"""Locks and leases with grpcio, against etcd or lockkeeper: etcd_grpc.py GENERATED ADDRESS [ADDRESS]

GENERATED is a folder with what grpcio-tools makes of the definitions. With two addresses of one cluster, what is begun at one goes on at the other.
"""

import queue
import sys

sys.path.insert(0, sys.argv[1])

import grpc
import rpc_pb2
import rpc_pb2_grpc
import v3lock_pb2
import v3lock_pb2_grpc

# Far longer than any step takes, so that only a hang fails.
LONG = 120


class Server:
    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address)
        self.leases = rpc_pb2_grpc.LeaseStub(self.channel)
        self.locks = v3lock_pb2_grpc.LockStub(self.channel)

    def grant(self, ttl: int = 60, number: int = 0):
        return self.leases.LeaseGrant(rpc_pb2.LeaseGrantRequest(TTL=ttl, ID=number), timeout=LONG)

    def revoke(self, lease: int) -> None:
        self.leases.LeaseRevoke(rpc_pb2.LeaseRevokeRequest(ID=lease), timeout=LONG)

    def lock(self, name: str, lease: int):
        """A call that may wait."""
        return self.locks.Lock.future(v3lock_pb2.LockRequest(name=name.encode(), lease=lease), timeout=LONG)

    def unlock(self, key: bytes):
        return self.locks.Unlock(v3lock_pb2.UnlockRequest(key=key), timeout=LONG)

    def life(self, lease: int, keys: bool = False):
        return self.leases.LeaseTimeToLive(rpc_pb2.LeaseTimeToLiveRequest(ID=lease, keys=keys), timeout=LONG)


def refused(call) -> tuple:
    try:
        call()
    except grpc.RpcError as error:
        return error.code(), error.details()
    raise AssertionError("it was not refused")


def waits(call) -> bool:
    try:
        call.result(timeout=0.3)
    except grpc.FutureTimeoutError:
        return True
    return False


def leases(one: Server, other: Server) -> None:
    granted = one.grant()
    assert granted.ID > 0 and granted.TTL == 60 and not granted.error, granted
    signs: queue.Queue = queue.Queue()
    alive = other.leases.LeaseKeepAlive(iter(signs.get, None), timeout=LONG)
    for number, ttl in [(granted.ID, 60), (granted.ID, 60), (1, 0)]:
        signs.put(rpc_pb2.LeaseKeepAliveRequest(ID=number))
        answer = next(alive)
        assert (answer.ID, answer.TTL) == (number, ttl), answer
    signs.put(None)
    life = other.life(granted.ID)
    assert life.grantedTTL == 60 and 0 < life.TTL <= 60, life
    listed = other.leases.LeaseLeases(rpc_pb2.LeaseLeasesRequest(), timeout=LONG).leases
    assert granted.ID in [lease.ID for lease in listed], listed
    exists = (grpc.StatusCode.FAILED_PRECONDITION, "etcdserver: lease already exists")
    assert refused(lambda: other.grant(number=granted.ID)) == exists
    other.revoke(granted.ID)
    assert one.life(granted.ID).TTL == -1
    gone = (grpc.StatusCode.NOT_FOUND, "etcdserver: requested lease not found")
    assert refused(lambda: one.revoke(granted.ID)) == gone


def locks(one: Server, other: Server) -> None:
    first, second, third = one.grant().ID, other.grant().ID, one.grant(ttl=3).ID
    name = f"grpcio/{first:x}"
    held = other.lock(name, first).result()
    assert held.key == f"{name}/{first:x}".encode(), held
    assert one.lock(name, first).result().key == held.key
    assert list(one.life(first, keys=True).keys) == [held.key]
    waiting = one.lock(name, second)
    assert waits(waiting), "two hold it"
    gives_up = other.lock(name, third)
    assert waits(gives_up), "two hold it"
    gives_up.cancel()
    one.unlock(held.key)
    following = waiting.result()
    assert following.header.revision > held.header.revision, (following, held)
    # The end of a lease frees its locks: once revoked, once expired.
    waiting = other.lock(name, third)
    assert waits(waiting), "two hold it"
    one.revoke(second)
    waiting.result()
    last = one.lock(name, first).result()
    assert other.life(third).TTL == -1
    one.unlock(last.key)
    one.unlock(last.key)
    _, message = refused(lambda: one.lock(name, second).result())
    assert message == "etcdserver: requested lease not found", message


servers = [Server(address) for address in sys.argv[2:]]
leases(servers[0], servers[-1])
locks(servers[0], servers[-1])
print("locks and leases: all as expected")
