"""A hold that an asyncio task keeps alive."""

from __future__ import annotations

import asyncio
from typing import Any, Callable, Dict, List, Optional, Set

from . import _wire
from ._clock import now
from ._errors import Error, Unreachable
from ._errors import lost as lost_error
from ._lease import LONGEST_SLEEP, Lease
from ._streams import AsyncTransport

# Tasks in the background, which the event loop alone would not keep.
_background: Set[asyncio.Task[None]] = set()


class Hold:
    """A hold on a lock, kept alive by a task until it is released or lost."""

    def __init__(self, transport: AsyncTransport, answer: Dict[str, Any], sent: float, on_lost: Optional[Callable[[Hold, str], None]]) -> None:
        self.name: str = answer["name"]
        #: Above the fences of all earlier holders: pass it with every write to the protected resource. None for a permit.
        self.fence: Optional[int] = answer["fence"] or None
        #: Set when the hold is lost.
        self.lost = asyncio.Event()
        #: The reason for the loss.
        self.reason = ""
        self._transport = transport
        self._hold: str = answer["hold"]
        self._session: str = answer["session"]
        self._ttl: float = answer["ttl_ms"] / 1000
        self._lease = Lease(sent, answer["valid_for_ms"])
        self._place = transport.preferred
        self._on_lost: List[Callable[[Hold, str], None]] = [] if on_lost is None else [on_lost]
        self._released = False
        self._keeper: Optional[asyncio.Task[None]] = None

    @property
    def valid(self) -> bool:
        """Whether no other client can hold the lock at this moment. The next moment may differ: only the fence protects the next step."""
        return not self.lost.is_set() and not self._released and self._lease.left(now()) > 0

    @property
    def valid_for(self) -> float:
        """The time for which the hold is valid without further keep-alives, in seconds."""
        return self._lease.left(now()) if self.valid else 0.0

    async def release(self) -> bool:
        """Releases the lock. Returns whether it was held until now. May be called again."""
        if self._released:
            return False
        self._released = True
        if self._keeper is not None:
            self._keeper.cancel()
        if self.lost.is_set():
            return False
        try:
            reply = await self._transport.call(_wire.release(self.name, self._hold))
        finally:
            end_session(self._transport, self._session)
        # If the answer to a release was lost, the repeated one finds nothing to release: the hold was ours, unless its time has passed.
        return bool(reply.value["released"]) or (reply.attempts > 1 and self._lease.left(now()) > 0)

    def raise_if_lost(self) -> None:
        """Raises `Lost` if the hold was lost."""
        if self.lost.is_set():
            raise lost_error(self.name, self.reason)

    async def start(self) -> None:
        """Confirms the hold, and starts the task that keeps it alive. `acquire` has called it."""
        start = now()
        # The request may have waited for long, and the validity in its answer counts from an unknown time since then.
        while not self._lease.is_fresh(now()):
            reason = await self._send_keep_alive(self._ttl / 4)
            if reason is not None:
                raise lost_error(self.name, reason)
            if now() > start + self._ttl:
                raise Unreachable(f"`{self.name}` was granted, and no daemon confirms it", "unreachable")
        self._keeper = asyncio.ensure_future(self._keep_alive())

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(min(self._lease.renewal_in(now()), LONGEST_SLEEP))
            if self._lease.left(now()) <= 0:
                return self._lose("no keep-alive was answered in time")
            if self._lease.renewal_in(now()) > 0:
                continue
            reason = await self._send_keep_alive(self._lease.timeout(now()))
            if reason is not None:
                return self._lose(reason)

    async def _send_keep_alive(self, timeout: float) -> Optional[str]:
        """Sends a keep-alive to one daemon; the next one goes to another daemon if it fails. Returns the reason if the hold is lost."""
        sent = now()
        attempt = self._transport.attempt(self._place, _wire.keep_alive(self._session, timeout))
        try:
            answer = _wire.alive(await asyncio.wait_for(attempt, timeout), self._hold)
        except Error as error:
            if not _wire.is_retryable(error.status):
                return str(error)
        except (OSError, EOFError, asyncio.TimeoutError):
            pass
        else:
            if answer.lost is None:
                self._lease.renew(sent, answer.valid_for_ms)
            return answer.lost
        self._place = (self._place + 1) % len(self._transport.endpoints)
        await asyncio.sleep(0.02)
        return None

    def _lose(self, reason: str) -> None:
        if self._released or self.lost.is_set():
            return
        self.reason = reason
        self.lost.set()
        for callback in self._on_lost:
            callback(self, reason)


def end_session(transport: AsyncTransport, session: str) -> None:
    """Ends a session in the background. If that fails, it ends when its time to live has passed."""

    async def end() -> None:
        try:
            await transport.call(_wire.end_session(session), retry_timeout=0.0)
        except Error:
            pass

    task = asyncio.ensure_future(end())
    _background.add(task)
    task.add_done_callback(_background.discard)


async def finish_background() -> None:
    """Waits for requests in the background."""
    loop = asyncio.get_running_loop()
    await asyncio.gather(*[task for task in _background if task.get_loop() is loop])
