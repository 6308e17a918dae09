"""The client for asyncio.

    from lockkeeper import aio

    async with aio.Client("http://127.0.0.1:7422").lock("nightly", wait=10) as hold:
        await store.write(report, fence=hold.fence)

If the hold is lost, the task in the `async with` block is cancelled, and the block raises `Lost`. With `cancel_on_loss=False` it is not
cancelled: then the block has to look at `hold.lost`. Cancelling a task that waits for a lock gives up its place in the queue.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from types import TracebackType
from typing import Any, AsyncIterator, Callable, Dict, List, Optional, Sequence, Tuple, Type, Union

from . import _wire
from ._async_hold import Hold, end_session, finish_background
from ._clock import now
from ._errors import Busy, Error, Lost
from ._streams import AsyncTransport
from ._tls import tls_context
from ._transport import Reply

__all__ = ["Candidate", "Client", "Election", "Hold", "Leadership", "Lock"]


class Client:
    """A daemon, or several of one cluster: a request goes to the next one if one does not answer.

    The arguments are those of `lockkeeper.Client`. A client belongs to one event loop.
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
        self._transport = AsyncTransport(endpoints, _wire.headers(token), tls_context(context, ca, cert, key))

    async def close(self) -> None:
        """Waits for requests in the background, and closes idle connections. Holds continue."""
        await finish_background()
        self._transport.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def lock(self, name: str, **options: Any) -> Lock:
        """The lock, for one holder at a time. See `Lock` for the options."""
        return Lock(self, name, {"mode": "exclusive"}, **options)

    def shared(self, name: str, **options: Any) -> Lock:
        """The lock in shared mode, for several holders at a time."""
        return Lock(self, name, {"mode": "shared"}, **options)

    def permit(self, name: str, permits: int, **options: Any) -> Lock:
        """One of `permits` permits."""
        return Lock(self, name, {"mode": "permit", "permits": permits}, **options)

    async def try_lock(self, name: str, **options: Any) -> Optional[Hold]:
        """Acquires the lock if it is free."""
        return await self.lock(name, **options).try_acquire()

    def election(self, name: str) -> Election:
        """The election of that name. Its leader is the holder of the lock of that name."""
        return Election(self, name)

    async def detached(self, name: str, owner: str) -> Optional[_wire.DetachedHold]:
        """The detached hold of an owner on the lock; None if it has none. See `Lock.hold_as`."""
        try:
            return _wire.detached_of((await self._transport.call(_wire.find_detached(name, owner))).value)
        except Error as error:
            if _wire.is_not_held(error):
                return None
            raise

    async def release_as(self, name: str, owner: str) -> bool:
        """Releases the detached hold of an owner. Returns whether it had one; False also if the answer to a first attempt was lost."""
        return bool((await self._transport.call(_wire.release_as(name, owner))).value["released"])

    async def locks(self, prefix: str = "") -> List[Dict[str, Any]]:
        """Every lock that is held or waited for."""
        locks: List[Dict[str, Any]] = await self._get(_wire.query("/v1/locks", prefix=prefix))
        return locks

    async def describe(self, name: str) -> Dict[str, Any]:
        """The holders and the waiters of a lock."""
        lock: Dict[str, Any] = await self._get(_wire.lock_path(name))
        return lock

    async def why(self, name: str) -> Dict[str, Any]:
        """The holders that the first waiter waits for, and the holders that those wait for in turn."""
        why: Dict[str, Any] = await self._get(_wire.lock_path(name, "why"))
        return why

    async def force_release(self, name: str) -> List[str]:
        """Revokes the holds on the lock. Their clients are notified."""
        released: List[str] = (await self._transport.call(_wire.force_release(name))).value["released"]
        return released

    async def members(self) -> List[Dict[str, Any]]:
        """The members of the cluster."""
        members: List[Dict[str, Any]] = await self._get("/v1/members")
        return members

    async def status(self) -> Dict[str, Any]:
        """The state of the daemon and of its member."""
        status: Dict[str, Any] = await self._get("/v1/status")
        return status

    async def whoami(self) -> Dict[str, Any]:
        """The name of the token, and what it allows."""
        whoami: Dict[str, Any] = await self._get("/v1/whoami")
        return whoami

    async def watch(self, prefix: str = "") -> AsyncIterator[Dict[str, Any]]:
        """The state of each lock with that prefix, and again whenever it changes. Ends when the daemon ends the stream."""
        async for line in self._watch(prefix, self._transport.preferred):
            if line is not None:
                yield line

    async def _watch(self, prefix: str, place: int) -> AsyncIterator[Optional[Dict[str, Any]]]:
        """The events of a watch stream; None once it is open."""
        async for line in self._transport.lines(_wire.query("/v1/watch", prefix=prefix), place):
            if line == b"":
                yield None
            elif line.startswith(b"data: "):
                yield json.loads(line[len(b"data: ") :])

    async def _get(self, path: str) -> Any:
        return (await self._transport.call(_wire.Call("GET", path))).value


class Lock:
    """A lock that can be acquired: an asynchronous context manager.

    wait            the timeout, in seconds; None for no timeout
    ttl             the time to live: the hold ends this long after the last keep-alive of this process, in seconds
    purpose         the purpose that lists show to other clients
    on_lost         called with the hold and the reason if it is lost
    cancel_on_loss  whether a loss cancels the task in the `async with` block
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
        cancel_on_loss: bool = True,
    ) -> None:
        self._client = client
        self._transport = client._transport
        self._name = name
        self._mode = mode
        self._wait = wait
        self._ttl = ttl
        self._purpose = purpose
        self._on_lost = on_lost
        self._cancel_on_loss = cancel_on_loss
        self._blocks: List[Tuple[Hold, _Block]] = []

    async def acquire(self) -> Hold:
        """Waits for the lock; raises `Busy` if it was not free in time."""
        return await self._acquire(self._wait)

    async def try_acquire(self) -> Optional[Hold]:
        """Acquires the lock if it is free; None if it is not."""
        try:
            return await self._acquire(0.0)
        except Busy:
            return None

    async def hold_as(self, owner: str, lasts: float) -> _wire.DetachedHold:
        """Holds the lock for a named owner for `lasts` seconds, without a session: no process has to be alive.

        Waits for the lock as `acquire` does. If the owner has the hold already, the same fence is returned at once, and the deadline moves.
        `Client.release_as` ends it. `ttl` and `on_lost` do not apply.
        """
        return await self._hold_as(owner, lasts, self._wait)

    async def try_hold_as(self, owner: str, lasts: float) -> Optional[_wire.DetachedHold]:
        """The same if the lock is free, or if the owner has it already; None otherwise."""
        try:
            return await self._hold_as(owner, lasts, 0.0)
        except Busy:
            return None

    async def _hold_as(self, owner: str, lasts: float, wait: Optional[float]) -> _wire.DetachedHold:
        deadline = None if wait is None else now() + wait
        while True:
            left = _wire.LONGEST_WAIT if deadline is None else min(max(deadline - now(), 0.0), _wire.LONGEST_WAIT)
            call = _wire.hold_as(self._name, self._mode, owner, lasts, self._purpose, left)
            try:
                return _wire.detached_of((await self._transport.call(call, deadline=deadline)).value)
            except Error as error:
                # The longest wait has passed, or a broken connection has withdrawn the request.
                if error.error not in ("busy", "given_up") or deadline is not None and now() >= deadline - 0.001:
                    raise

    async def _acquire(self, wait: Optional[float]) -> Hold:
        deadline = None if wait is None else now() + wait
        while True:
            # The session comes first: every daemon can forward a request of a session, so that it can be sent again through any of them.
            created = await self._transport.call(_wire.new_session(self._ttl, self._client._owner), deadline=deadline)
            session: str = created.value["session"]
            try:
                reply = await self._acquire_by(session, deadline)
                hold = self._kind(self._transport, reply.value, reply.sent, self._on_lost)
                await hold.start()
                return hold
            except BaseException as error:
                # Also if this task is cancelled: the request may have been granted meanwhile.
                if not isinstance(error, Error) or not _wire.is_over(error):
                    end_session(self._transport, session)
                # A hold that was lost at once was of no use yet; a session may end with its daemon.
                again = isinstance(error, Lost) or isinstance(error, Error) and _wire.is_over(error)
                if not again or deadline is not None and now() >= deadline:
                    raise

    async def _acquire_by(self, session: str, deadline: Optional[float]) -> Reply:
        """Waits for the lock by a session, which is kept alive meanwhile."""
        waiting = asyncio.ensure_future(self._wait_by(session, deadline))
        keeper = asyncio.ensure_future(self._keep_alive(session))
        try:
            await asyncio.wait({waiting, keeper}, return_when=asyncio.FIRST_COMPLETED)
            return await (waiting if waiting.done() else keeper)
        finally:
            for task in (waiting, keeper):
                task.cancel()
            await asyncio.gather(waiting, keeper, return_exceptions=True)

    async def _wait_by(self, session: str, deadline: Optional[float]) -> Reply:
        while True:
            left = _wire.LONGEST_WAIT if deadline is None else min(max(deadline - now(), 0.0), _wire.LONGEST_WAIT)
            call = _wire.acquire(self._name, self._mode, session, _wire.new_request_id(), self._purpose, left)
            try:
                return await self._transport.call(call, deadline=deadline)
            except Error as error:
                # The longest wait has passed, or a broken connection has withdrawn the request.
                if error.error not in ("busy", "given_up") or deadline is not None and now() >= deadline - 0.001:
                    raise

    async def _keep_alive(self, session: str) -> Reply:
        """Keeps a session alive. Raises the error with which it ends."""
        place, pause = self._transport.preferred, min(self._ttl / 4, 3.0)
        while True:
            await asyncio.sleep(pause)
            try:
                await asyncio.wait_for(self._transport.attempt(place, _wire.keep_alive(session, pause)), pause)
            except Error as error:
                if _wire.is_over(error):
                    raise
            except (OSError, EOFError, asyncio.TimeoutError):
                pass
            else:
                continue
            place = (place + 1) % len(self._transport.endpoints)

    async def __aenter__(self) -> Hold:
        hold = await self.acquire()
        block = _Block()
        if self._cancel_on_loss:
            hold._on_lost.append(block.cancel)
        self._blocks.append((hold, block))
        return hold

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        hold, block = self._blocks.pop()
        cancelled_by_loss = block.finish()
        held = await hold.release()
        # An error of the block itself is raised rather than this one.
        if not held and (kind is None or (cancelled_by_loss and kind is asyncio.CancelledError)):
            raise Lost(f"the lock `{hold.name}` was lost: {hold.reason or 'its session has ended'}", "lost") from None


class _Block:
    """The task in an `async with` block, which a loss cancels."""

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._cancelled = False
        self._before = _cancellations(self._task)

    def cancel(self, hold: Hold, reason: str) -> None:
        """Cancels the task."""
        if self._task is not None:
            self._cancelled = True
            self._task.cancel()

    def finish(self) -> bool:
        """Ends the block. Returns whether the loss alone cancelled the task; a cancellation by others must not be swallowed."""
        task, self._task = self._task, None
        if not self._cancelled or task is None:
            return False
        if not hasattr(task, "uncancel"):
            # Before Python 3.11 a task does not count its cancellations.
            return True
        return int(task.uncancel()) <= self._before


def _cancellations(task: Optional[asyncio.Task[Any]]) -> int:
    return int(task.cancelling()) if task is not None and hasattr(task, "cancelling") else 0


class Election:
    """An election: its leader is the holder of the lock of that name."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name

    def campaign(self, value: str, **options: Any) -> Candidate:
        """A candidate with a value that observers see, such as an address. Options as for `Lock`, without `purpose`."""
        return Candidate(self._client, self._name, {"mode": "exclusive"}, purpose=_wire.purpose_of(value, self._client._owner), **options)

    async def leader(self) -> Optional[_wire.Leader]:
        """The current leader."""
        return _wire.leader_of(await self._client.describe(self._name))

    async def observe(self) -> AsyncIterator[Optional[_wire.Leader]]:
        """The current leader, and then each new one; None while there is none. It continues through another daemon if one dies."""
        transport = self._client._transport
        last: Optional[_wire.Leader] = None
        first, failures = True, 0
        while True:
            try:
                async for lock in self._client._watch(self._name, transport.preferred):
                    # The stream is open before the first look: no change falls between the two.
                    failures = 0
                    shown = await self._client.describe(self._name) if lock is None else lock
                    leader = _wire.leader_of(shown)
                    if shown["name"] == self._name and (first or leader != last):
                        first, last = False, leader
                        yield leader
            except (Error, OSError, EOFError, asyncio.TimeoutError) as failure:
                failures += 1
                refused = isinstance(failure, Error) and failure.status != 0 and not _wire.is_retryable(failure.status)
                if refused or failures > 8 * len(transport.endpoints):
                    raise
            transport.preferred = (transport.preferred + 1) % len(transport.endpoints)
            await asyncio.sleep(min(0.05 * 2**failures, 1.0))


class Leadership(Hold):
    """The leadership, until it is resigned or lost."""

    async def resign(self) -> bool:
        """Resigns, so that the next candidate can lead. Returns whether this candidate led until now."""
        return await self.release()


class Candidate(Lock):
    """A candidate: `acquire` waits until it is elected, and an `async with` block lasts as long as it leads."""

    _kind = Leadership

    async def acquire(self) -> Leadership:
        """Waits until the candidate is elected."""
        leadership = await super().acquire()
        assert isinstance(leadership, Leadership)
        return leadership

    async def __aenter__(self) -> Leadership:
        leadership = await super().__aenter__()
        assert isinstance(leadership, Leadership)
        return leadership
