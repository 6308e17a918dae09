"""The blocking client."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from types import TracebackType
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Type, Union

from . import _wire
from ._clock import now
from ._errors import Busy, Cancelled, Error, Lost, cancelled
from ._hold import Hold, end_session
from ._tls import tls_context
from ._transport import Cancel, Reply, Transport

__all__ = ["Candidate", "Client", "Election", "Leadership", "Lock"]


class Client:
    """A daemon, or several of one cluster: a request goes to the next one if one does not answer.

    token            the token, if the daemons need one
    owner            the owner that lists show to other clients
    ca               a file with the authority of the daemons' certificates; default: the authorities of the system
    cert, key        files with the client's own certificate and its key, if the daemons need one
    context          an `ssl.SSLContext` in place of `ca`, `cert` and `key`
    insecure_no_tls  allows to send the token to other machines unencrypted
    """

    def __init__(
        self,
        url: Union[str, Sequence[str]] = "http://127.0.0.1:7422",
        *,
        token: Optional[str] = None,
        owner: Optional[str] = None,
        ca: Optional[str] = None,
        cert: Optional[str] = None,
        key: Optional[str] = None,
        context: Optional[ssl.SSLContext] = None,
        insecure_no_tls: bool = False,
    ) -> None:
        endpoints = _wire.endpoints(url, token, insecure_no_tls)
        self._owner = owner or _wire.default_owner("python")
        self._transport = Transport(endpoints, _wire.headers(token), tls_context(context, ca, cert, key))

    def close(self) -> None:
        """Closes idle connections. Holds continue."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def lock(self, name: str, **options: Any) -> Lock:
        """The lock, for one holder at a time. See `Lock` for the options."""
        return Lock(self, name, {"mode": "exclusive"}, **options)

    def shared(self, name: str, **options: Any) -> Lock:
        """The lock in shared mode, for several holders at a time."""
        return Lock(self, name, {"mode": "shared"}, **options)

    def permit(self, name: str, permits: int, **options: Any) -> Lock:
        """One of `permits` permits."""
        return Lock(self, name, {"mode": "permit", "permits": permits}, **options)

    def try_lock(self, name: str, **options: Any) -> Optional[Hold]:
        """Acquires the lock if it is free."""
        return self.lock(name, **options).try_acquire()

    def election(self, name: str) -> Election:
        """The election of that name. Its leader is the holder of the lock of that name."""
        return Election(self, name)

    def detached(self, name: str, owner: str) -> Optional[_wire.DetachedHold]:
        """The detached hold of an owner on the lock; None if it has none. See `Lock.hold_as`."""
        try:
            return _wire.detached_of(self._transport.call(_wire.find_detached(name, owner)).value)
        except Error as error:
            if _wire.is_not_held(error):
                return None
            raise

    def release_as(self, name: str, owner: str) -> bool:
        """Releases the detached hold of an owner. Returns whether it had one; False also if the answer to a first attempt was lost."""
        return bool(self._transport.call(_wire.release_as(name, owner)).value["released"])

    def locks(self, prefix: str = "") -> List[Dict[str, Any]]:
        """Every lock that is held or waited for."""
        locks: List[Dict[str, Any]] = self._get(_wire.query("/v1/locks", prefix=prefix))
        return locks

    def describe(self, name: str) -> Dict[str, Any]:
        """The holders and the waiters of a lock."""
        lock: Dict[str, Any] = self._get(_wire.lock_path(name))
        return lock

    def why(self, name: str) -> Dict[str, Any]:
        """The holders that the first waiter waits for, and the holders that those wait for in turn."""
        why: Dict[str, Any] = self._get(_wire.lock_path(name, "why"))
        return why

    def force_release(self, name: str) -> List[str]:
        """Revokes the holds on the lock. Their clients are notified."""
        released: List[str] = self._transport.call(_wire.force_release(name)).value["released"]
        return released

    def members(self) -> List[Dict[str, Any]]:
        """The members of the cluster."""
        members: List[Dict[str, Any]] = self._get("/v1/members")
        return members

    def status(self) -> Dict[str, Any]:
        """The state of the daemon and of its member."""
        status: Dict[str, Any] = self._get("/v1/status")
        return status

    def whoami(self) -> Dict[str, Any]:
        """The name of the token, and what it allows."""
        whoami: Dict[str, Any] = self._get("/v1/whoami")
        return whoami

    def watch(self, prefix: str = "", *, cancel: Optional[Cancel] = None) -> Iterator[Dict[str, Any]]:
        """The state of each lock with that prefix, and again whenever it changes. Ends when the daemon ends the stream."""
        for line in self._watch(prefix, self._transport.preferred, cancel):
            if line is not None:
                yield line

    def _watch(self, prefix: str, place: int, cancel: Optional[Cancel]) -> Iterator[Optional[Dict[str, Any]]]:
        """The events of a watch stream; None once it is open."""
        for line in self._transport.lines(_wire.query("/v1/watch", prefix=prefix), place, cancel):
            if line == b"":
                yield None
            elif line.startswith(b"data: "):
                yield json.loads(line[len(b"data: ") :])

    def _get(self, path: str) -> Any:
        return self._transport.call(_wire.Call("GET", path)).value


class Lock:
    """A lock that can be acquired: a context manager.

    wait      the timeout, in seconds; None for no timeout
    ttl       the time to live: the hold ends this long after the last keep-alive of this process, in seconds
    purpose   the purpose that lists show to other clients
    on_lost   called with the hold and the reason, in another thread, if it is lost
    """

    _kind: Type[Hold] = Hold

    def __init__(
        self,
        client: Client,
        name: str,
        mode: Dict[str, Any],
        *,
        wait: Optional[float] = None,
        ttl: float = 30.0,
        purpose: str = "",
        on_lost: Optional[Callable[[Hold, str], None]] = None,
    ) -> None:
        self._client = client
        self._transport = client._transport
        self._name = name
        self._mode = mode
        self._wait = wait
        self._ttl = ttl
        self._purpose = purpose
        self._on_lost = on_lost
        self._held: List[Hold] = []

    def acquire(self, cancel: Optional[Cancel] = None) -> Hold:
        """Waits for the lock; raises `Busy` if it was not free in time, and `Cancelled` after `cancel.cancel()`."""
        return self._acquire(self._wait, cancel)

    def try_acquire(self) -> Optional[Hold]:
        """Acquires the lock if it is free; None if it is not."""
        try:
            return self._acquire(0.0, None)
        except Busy:
            return None

    def hold_as(self, owner: str, lasts: float, cancel: Optional[Cancel] = None) -> _wire.DetachedHold:
        """Holds the lock for a named owner for `lasts` seconds, without a session: no process has to be alive.

        Waits for the lock as `acquire` does. If the owner has the hold already, the same fence is returned at once, and the deadline moves.
        `Client.release_as` ends it. `ttl` and `on_lost` do not apply.
        """
        return self._hold_as(owner, lasts, self._wait, cancel)

    def try_hold_as(self, owner: str, lasts: float) -> Optional[_wire.DetachedHold]:
        """The same if the lock is free, or if the owner has it already; None otherwise."""
        try:
            return self._hold_as(owner, lasts, 0.0, None)
        except Busy:
            return None

    def _hold_as(self, owner: str, lasts: float, wait: Optional[float], cancel: Optional[Cancel]) -> _wire.DetachedHold:
        deadline = None if wait is None else now() + wait
        while True:
            left = _wire.LONGEST_WAIT if deadline is None else min(max(deadline - now(), 0.0), _wire.LONGEST_WAIT)
            call = _wire.hold_as(self._name, self._mode, owner, lasts, self._purpose, left)
            try:
                return _wire.detached_of(self._transport.call(call, deadline=deadline, cancel=cancel).value)
            except Error as error:
                # The longest wait has passed, or a broken connection has withdrawn the request.
                if error.error not in ("busy", "given_up") or deadline is not None and now() >= deadline - 0.001:
                    raise

    def _acquire(self, wait: Optional[float], cancel: Optional[Cancel]) -> Hold:
        deadline = None if wait is None else now() + wait
        while True:
            # The session comes first: every daemon can forward a request of a session, so that it can be sent again through any of them.
            created = self._transport.call(_wire.new_session(self._ttl, self._client._owner), deadline=deadline, cancel=cancel)
            session: str = created.value["session"]
            try:
                reply = self._acquire_by(session, deadline, cancel)
                return self._kind(self._transport, reply.value, reply.sent, self._on_lost)
            except (Error, KeyboardInterrupt) as error:
                if not isinstance(error, Error) or not _wire.is_over(error):
                    end_session(self._transport, session)
                # A hold that was lost at once was of no use yet; a session may end with its daemon.
                again = isinstance(error, Lost) or isinstance(error, Error) and _wire.is_over(error)
                if not again or deadline is not None and now() >= deadline:
                    raise

    def _acquire_by(self, session: str, deadline: Optional[float], cancel: Optional[Cancel]) -> Reply:
        """Waits for the lock by a session, which is kept alive meanwhile."""
        with _KeptAlive(self._transport, session, self._ttl, cancel) as waiting:
            while True:
                left = _wire.LONGEST_WAIT if deadline is None else min(max(deadline - now(), 0.0), _wire.LONGEST_WAIT)
                call = _wire.acquire(self._name, self._mode, session, _wire.new_request_id(), self._purpose, left)
                try:
                    return self._transport.call(call, deadline=deadline, cancel=waiting.cancel)
                except Cancelled:
                    if waiting.over is not None:
                        raise waiting.over from None
                    raise cancelled(self._name) from None
                except Error as error:
                    # The longest wait has passed, or a broken connection has withdrawn the request.
                    if error.error not in ("busy", "given_up") or deadline is not None and now() >= deadline - 0.001:
                        raise

    def __enter__(self) -> Hold:
        hold = self.acquire()
        self._held.append(hold)
        return hold

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        hold = self._held.pop()
        held = hold.release()
        # An error of the block itself is raised rather than this one.
        if not held and kind is None:
            raise Lost(f"the lock `{hold.name}` was lost: {hold.reason or 'its session has ended'}", "lost")


class _KeptAlive:
    """Keeps a session alive while it waits for a lock: a context manager. Cancels the request if the session ends."""

    def __init__(self, transport: Transport, session: str, ttl: float, cancel: Optional[Cancel]) -> None:
        self._transport = transport
        self._session = session
        self._pause = min(ttl / 4, 3.0)
        self._callers = cancel
        self._finished = threading.Event()
        #: Ends the waiting request.
        self.cancel = Cancel()
        #: The error with which the session ended.
        self.over: Optional[Error] = None

    def __enter__(self) -> _KeptAlive:
        self._calls = None if self._callers is None else self._callers.calls(self.cancel.cancel)
        if self._calls is not None:
            self._calls.__enter__()
        threading.Thread(target=self._run, name=f"session {self._session}", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._finished.set()
        if self._calls is not None:
            self._calls.__exit__(None, None, None)

    def _run(self) -> None:
        place = self._transport.preferred
        while not self._finished.wait(self._pause):
            try:
                self._transport.attempt(place, _wire.keep_alive(self._session, self._pause))
            except Error as error:
                if _wire.is_over(error):
                    self.over = error
                    return self.cancel.cancel()
            except (OSError, http.client.HTTPException):
                pass
            else:
                continue
            place = (place + 1) % len(self._transport.endpoints)


class Election:
    """An election: its leader is the holder of the lock of that name."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name

    def campaign(self, value: str, **options: Any) -> Candidate:
        """A candidate with a value that observers see, such as an address. Options as for `Lock`, without `purpose`."""
        return Candidate(self._client, self._name, {"mode": "exclusive"}, purpose=_wire.purpose_of(value, self._client._owner), **options)

    def leader(self) -> Optional[_wire.Leader]:
        """The current leader."""
        return _wire.leader_of(self._client.describe(self._name))

    def observe(self, *, cancel: Optional[Cancel] = None) -> Iterator[Optional[_wire.Leader]]:
        """The current leader, and then each new one; None while there is none. It continues through another daemon if one dies."""
        transport = self._client._transport
        last: Optional[_wire.Leader] = None
        first, failures = True, 0
        pause = cancel or Cancel()
        while not pause.cancelled:
            try:
                for lock in self._client._watch(self._name, transport.preferred, cancel):
                    # The stream is open before the first look: no change falls between the two.
                    failures = 0
                    shown = self._client.describe(self._name) if lock is None else lock
                    leader = _wire.leader_of(shown)
                    if shown["name"] == self._name and (first or leader != last):
                        first, last = False, leader
                        yield leader
            except (Error, OSError, http.client.HTTPException) as failure:
                if pause.cancelled:
                    return
                failures += 1
                refused = isinstance(failure, Error) and failure.status != 0 and not _wire.is_retryable(failure.status)
                if refused or failures > 8 * len(transport.endpoints):
                    raise
            transport.preferred = (transport.preferred + 1) % len(transport.endpoints)
            pause.wait(min(0.05 * 2**failures, 1.0))


class Leadership(Hold):
    """The leadership, until it is resigned or lost."""

    def resign(self) -> bool:
        """Resigns, so that the next candidate can lead. Returns whether this candidate led until now."""
        return self.release()


class Candidate(Lock):
    """A candidate: `acquire` waits until it is elected, and a `with` block lasts as long as it leads."""

    _kind = Leadership

    def acquire(self, cancel: Optional[Cancel] = None) -> Leadership:
        """Waits until the candidate is elected."""
        leadership = super().acquire(cancel)
        assert isinstance(leadership, Leadership)
        return leadership

    def __enter__(self) -> Leadership:
        leadership = super().__enter__()
        assert isinstance(leadership, Leadership)
        return leadership
