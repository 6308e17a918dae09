"""A hold that a thread keeps alive."""

from __future__ import annotations

import http.client
import threading
from typing import Any, Callable, Dict, Optional

from . import _wire
from ._clock import now
from ._errors import Error, Unreachable
from ._errors import lost as lost_error
from ._lease import LONGEST_SLEEP, Lease
from ._transport import Transport


class Hold:
    """A hold on a lock, kept alive by a thread until it is released or lost."""

    def __init__(self, transport: Transport, answer: Dict[str, Any], sent: float, on_lost: Optional[Callable[[Hold, str], None]]) -> None:
        self.name: str = answer["name"]
        #: Above the fences of all earlier holders: pass it with every write to the protected resource. None for a permit.
        self.fence: Optional[int] = answer["fence"] or None
        #: Set when the hold is lost.
        self.lost = threading.Event()
        #: The reason for the loss.
        self.reason = ""
        self._transport = transport
        self._hold: str = answer["hold"]
        self._session: str = answer["session"]
        self._ttl: float = answer["ttl_ms"] / 1000
        self._lease = Lease(sent, answer["valid_for_ms"])
        self._place = transport.preferred
        self._on_lost = on_lost
        self._released = threading.Event()
        self._mutex = threading.Lock()
        self._confirm()
        threading.Thread(target=self._keep_alive, name=f"lock {self.name}", daemon=True).start()

    @property
    def valid(self) -> bool:
        """Whether no other client can hold the lock at this moment. The next moment may differ: only the fence protects the next step."""
        return not self.lost.is_set() and not self._released.is_set() and self._lease.left(now()) > 0

    @property
    def valid_for(self) -> float:
        """The time for which the hold is valid without further keep-alives, in seconds."""
        return self._lease.left(now()) if self.valid else 0.0

    def release(self) -> bool:
        """Releases the lock. Returns whether it was held until now. May be called again."""
        with self._mutex:
            if self._released.is_set():
                return False
            self._released.set()
            if self.lost.is_set():
                return False
        reply = self._transport.call(_wire.release(self.name, self._hold))
        # If the answer to a release was lost, the repeated one finds nothing to release: the hold was ours, unless its time has passed.
        released = bool(reply.value["released"]) or (reply.attempts > 1 and self._lease.left(now()) > 0)
        end_session(self._transport, self._session)
        return released

    def raise_if_lost(self) -> None:
        """Raises `Lost` if the hold was lost."""
        if self.lost.is_set():
            raise lost_error(self.name, self.reason)

    def _confirm(self) -> None:
        """Sends a keep-alive if the request waited for long: the validity in its answer counts from an unknown time since then."""
        start = now()
        while not self._lease.is_fresh(now()):
            reason = self._send_keep_alive(now(), self._ttl / 4)
            if reason is not None:
                raise lost_error(self.name, reason)
            if now() > start + self._ttl:
                raise Unreachable(f"`{self.name}` was granted, and no daemon confirms it", "unreachable")

    def _keep_alive(self) -> None:
        while not self._released.wait(min(self._lease.renewal_in(now()), LONGEST_SLEEP)):
            # One reading for the check and the renewal: if the clock jumped in between, the renewal would revive a hold that has expired.
            sent = now()
            if self._lease.left(sent) <= 0:
                return self._lose("no keep-alive was answered in time")
            if self._lease.renewal_in(sent) > 0:
                continue
            reason = self._send_keep_alive(sent, self._lease.timeout(sent))
            if reason is not None:
                return self._lose(reason)

    def _send_keep_alive(self, sent: float, timeout: float) -> Optional[str]:
        """Sends a keep-alive to one daemon; the next one goes to another daemon if it fails. `sent` is a reading of the clock before it.
        Returns the reason if the hold is lost."""
        try:
            answer = _wire.alive(self._transport.attempt(self._place, _wire.keep_alive(self._session, timeout)), self._hold)
        except Error as error:
            if not _wire.is_retryable(error.status):
                return str(error)
        except (OSError, http.client.HTTPException):
            pass
        else:
            if answer.lost is None:
                self._lease.renew(sent, answer.valid_for_ms)
            return answer.lost
        self._place = (self._place + 1) % len(self._transport.endpoints)
        self._released.wait(0.02)
        return None

    def _lose(self, reason: str) -> None:
        with self._mutex:
            if self._released.is_set():
                return
            self.reason = reason
            self.lost.set()
        if self._on_lost is not None:
            self._on_lost(self, reason)


def end_session(transport: Transport, session: str) -> None:
    """Ends a session. If that fails, it ends when its time to live has passed."""
    try:
        transport.call(_wire.end_session(session), retry_timeout=0.0)
    except Error:
        pass
