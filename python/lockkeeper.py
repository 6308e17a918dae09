"""Locks of a lockkeeper daemon, over HTTP. One file, standard library only, Python 3.9 or later.

    from lockkeeper import Client

    with Client("http://127.0.0.1:7422").lock("nightly", wait=10) as hold:
        store.write(report, fence=hold.fence)    # the store refuses lower fences

While a lock is held, a thread sends keep-alives. If the hold is lost all the same (the daemon died, or an operator revoked it), `hold.lost` is
set, the `on_lost` callback is called, and leaving the `with` block raises `Lost`.

`hold.valid` is counted on a clock that continues while the machine is suspended (CLOCK_BOOTTIME on Linux). Where Python offers no such clock,
a process that was suspended may take a hold for valid that has ended; the fence protects there too.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import socket
import ssl
import threading
import time
import urllib.parse
import uuid
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Type, Union

__all__ = ["Busy", "Client", "Error", "Hold", "Lock", "Lost"]

# The longest wait that a daemon accepts in one request, in seconds.
_LONGEST_WAIT = 86_400.0
# The time that an answer may take beyond the requested wait, in seconds.
_TIMEOUT = 10.0
# The number of times that a request without an answer is sent. Requests have ids, so that this is safe.
_TRIES = 4
# The part of a promised time that is counted. While chrony corrects a clock, the clock may run slow by up to 1/12: more time has
# passed than it shows.
_COUNTED = 11 / 12
# CLOCK_BOOTTIME, which counts suspend; None where the system has no such clock.
_BOOTTIME: Optional[int] = getattr(time, "CLOCK_BOOTTIME", None)


def _now() -> float:
    """Seconds on a clock that is never set."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


class Error(Exception):
    """A daemon refused a request, or none could be reached."""

    def __init__(self, message: str, error: str = "unreachable", status: int = 0) -> None:
        super().__init__(message)
        self.error = error
        self.status = status


class Busy(Error):
    """The lock was not free in time."""


class Lost(Error):
    """The lock was lost while it was held."""


@dataclass(frozen=True)
class _Endpoint:
    secure: bool
    host: str
    port: int


class Client:
    """A daemon, or several of one cluster: the next one is tried if one cannot be reached.

    A token is sent to other machines only with https://, unless `insecure_no_tls` states that the network is trusted.
    """

    def __init__(
        self,
        url: Union[str, Sequence[str]] = "http://127.0.0.1:7422",
        *,
        token: Optional[str] = None,
        owner: Optional[str] = None,
        context: Optional[ssl.SSLContext] = None,
        insecure_no_tls: bool = False,
    ) -> None:
        urls = [url] if isinstance(url, str) else list(url)
        if not urls:
            raise ValueError("no url was given")
        self._endpoints = [_endpoint(one) for one in urls]
        exposed = [one.host for one in self._endpoints if not one.secure and not _is_loopback(one.host)]
        if token is not None and exposed and not insecure_no_tls:
            raise ValueError(
                f"the token would go to {exposed[0]} unencrypted: write https://, or pass insecure_no_tls=True if the network is trusted"
            )
        self._token = token
        self._owner = owner or f"{socket.gethostname()} (python)"
        self._context = context

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
        return self.lock(name, wait=0, **options).try_acquire()

    def locks(self, prefix: str = "") -> List[Dict[str, Any]]:
        """Every lock that is held or waited for."""
        locks: List[Dict[str, Any]] = self._ask("GET", "/v1/locks?" + urllib.parse.urlencode({"prefix": prefix}))
        return locks

    def describe(self, name: str) -> Dict[str, Any]:
        """The holders and the waiters of a lock."""
        lock: Dict[str, Any] = self._ask("GET", _path(name))
        return lock

    def why(self, name: str) -> Dict[str, Any]:
        """The holders that the first waiter waits for, and the holders that those wait for in turn."""
        why: Dict[str, Any] = self._ask("GET", _path(name, "why"))
        return why

    def force_release(self, name: str) -> List[str]:
        """Revokes the holds on the lock. Their clients are notified."""
        released: List[str] = self._ask("POST", _path(name, "force-release"), {})["released"]
        return released

    def members(self) -> List[Dict[str, Any]]:
        """The members of the cluster."""
        members: List[Dict[str, Any]] = self._ask("GET", "/v1/members")
        return members

    def status(self) -> Dict[str, Any]:
        """The state of the daemon and of its member."""
        status: Dict[str, Any] = self._ask("GET", "/v1/status")
        return status

    def watch(self, prefix: str = "") -> Iterator[Dict[str, Any]]:
        """The state of each lock with that prefix, and again whenever it changes."""
        path = "/v1/watch?" + urllib.parse.urlencode({"prefix": prefix})
        # The daemon sends a line at least every 15 seconds.
        connection = self._connect(self._endpoints[0], 60.0)
        try:
            connection.request("GET", path, headers=self._headers())
            response = connection.getresponse()
            if response.status != 200:
                raise _error(response.status, response.read())
            for line in response:
                if line.startswith(b"data: "):
                    yield json.loads(line[len(b"data: ") :])
        finally:
            connection.close()

    def _connect(self, to: _Endpoint, timeout: float) -> http.client.HTTPConnection:
        if to.secure:
            return http.client.HTTPSConnection(to.host, to.port, timeout=timeout, context=self._context)
        return http.client.HTTPConnection(to.host, to.port, timeout=timeout)

    def _headers(self) -> Dict[str, str]:
        headers = {"accept": "application/json"}
        if self._token is not None:
            headers["authorization"] = f"Bearer {self._token}"
        return headers

    def _ask(
        self, method: str, path: str, body: Any = None, wait: float = 0.0, tries: int = _TRIES, timeout: float = _TIMEOUT
    ) -> Any:
        """Sends one request, again through the next daemon while no answer arrives. Only for requests that may be repeated."""
        headers, content = self._headers(), None
        if body is not None:
            headers["content-type"] = "application/json"
            content = json.dumps(body)
        failure: Optional[Exception] = None
        for attempt in range(tries):
            if attempt:
                time.sleep(min(0.1 * 2**attempt, 2.0))
            endpoint = self._endpoints[attempt % len(self._endpoints)]
            connection = self._connect(endpoint, wait + timeout)
            try:
                connection.request(method, path, body=content, headers=headers)
                response = connection.getresponse()
                text = response.read()
            except (OSError, http.client.HTTPException) as error:
                failure = error
                continue
            finally:
                connection.close()
            if response.status < 300:
                return json.loads(text) if text else None
            problem = _error(response.status, text)
            if response.status != 503:
                raise problem
            # This daemon does not serve now, or cannot reach the daemon that has the session; another one may.
            failure = problem
        if isinstance(failure, Error):
            raise failure
        raise Error(f"no daemon can be reached: {failure}") from failure

    def _new_session(self, ttl: float) -> str:
        """A session for one hold. If the answer is lost, a session without holds remains until its time to live has passed."""
        session: str = self._ask("POST", "/v1/sessions", {"ttl_ms": int(ttl * 1000), "owner": self._owner})["session"]
        return session

    def _end_session(self, session: str) -> None:
        """Ends a session that holds nothing. If that fails, it ends when its time to live has passed."""
        try:
            self._ask("DELETE", f"/v1/sessions/{session}", tries=1)
        except Error:
            pass


class Lock:
    """A lock that can be acquired: a context manager.

    wait      the timeout, in seconds; None for no timeout
    ttl       the time to live: the hold ends this long after the last keep-alive of this process, in seconds
    purpose   the purpose that lists show to other clients
    on_lost   called with the hold and the reason, in another thread, if it is lost
    """

    def __init__(
        self,
        client: Client,
        name: str,
        how: Dict[str, Any],
        *,
        wait: Optional[float] = None,
        ttl: float = 30.0,
        purpose: str = "",
        on_lost: Optional[Callable[[Hold, str], None]] = None,
    ) -> None:
        self._client = client
        self._name = name
        self._how = how
        self._wait = wait
        self._ttl = ttl
        self._purpose = purpose
        self._on_lost = on_lost
        self._held: List[Hold] = []

    def acquire(self) -> Hold:
        """Waits for the lock; raises `Busy` if it was not free in time."""
        until = None if self._wait is None else _now() + self._wait
        for attempt in range(1, _TRIES + 1):
            # The session comes first: every daemon can forward a request of a session, so that it can be sent again through any of them.
            session = self._client._new_session(self._ttl)
            try:
                return self._acquire_by(session, until)
            except Error as error:
                # The daemon that had the session has died, and the session with it.
                if error.error == "no_such_session" and attempt < _TRIES:
                    continue
                self._client._end_session(session)
                raise
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _acquire_by(self, session: str, until: Optional[float]) -> Hold:
        """Waits for the lock by a session, which is kept alive meanwhile."""
        with _KeptAlive(self._client, session, self._ttl):
            while True:
                left = _LONGEST_WAIT if until is None else min(max(until - _now(), 0.0), _LONGEST_WAIT)
                request = {
                    **self._how,
                    "session": session,
                    "wait_ms": int(left * 1000),
                    "purpose": self._purpose,
                    "request": str(uuid.uuid4()),
                }
                asked = _now()
                try:
                    answer = self._client._ask("POST", _path(self._name, "acquire"), request, wait=left)
                except Busy:
                    if until is not None and _now() >= until - 0.001:
                        raise
                    continue
                return Hold(self._client, answer, asked, self._on_lost)

    def try_acquire(self) -> Optional[Hold]:
        """The same; None if it was not free in time."""
        try:
            return self.acquire()
        except Busy:
            return None

    def __enter__(self) -> Hold:
        hold = self.acquire()
        self._held.append(hold)
        return hold

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        hold = self._held.pop()
        held = hold.release()
        # An error of the block itself is raised rather than this one.
        if not held and kind is None:
            raise Lost(f"the lock `{hold.name}` was lost: {hold.reason or 'the session is over'}", "lost")


class _KeptAlive:
    """Keeps a session alive while it waits for a lock: a context manager."""

    def __init__(self, client: Client, session: str, ttl: float) -> None:
        self._client = client
        self._path = f"/v1/sessions/{session}/keep-alive"
        self._ttl = ttl
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"session {session}", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: Any) -> None:
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(self._ttl / 4):
            try:
                self._client._ask("POST", self._path, tries=1, timeout=self._ttl)
            except Error:
                # If the session has ended, the waiting request fails.
                pass


class Hold:
    """A hold on a lock, kept alive by a thread until it is released or lost."""

    def __init__(
        self,
        client: Client,
        answer: Dict[str, Any],
        asked: float,
        on_lost: Optional[Callable[[Hold, str], None]],
    ) -> None:
        self.name: str = answer["name"]
        #: Above the fences of all earlier holders: pass it with every write to the protected resource. None for a permit.
        self.fence: Optional[int] = answer["fence"] or None
        #: Set when the hold is lost.
        self.lost = threading.Event()
        #: The reason for the loss.
        self.reason = ""
        self._client = client
        self._hold: str = answer["hold"]
        self._session: str = answer["session"]
        self._ttl: float = answer["ttl_ms"] / 1000
        valid_for = answer["valid_for_ms"] / 1000 * _COUNTED
        # The answer was sent at an unknown time, but not before the request.
        self._valid_until = asked + valid_for
        self._on_lost = on_lost
        self._over = threading.Event()
        if _now() > asked + valid_for / 2:
            self._valid_until = _now() + valid_for
            if not self._send_keep_alive():
                self._valid_until = asked
        self._thread = threading.Thread(target=self._keep_alive, name=f"lock {self.name}", daemon=True)
        self._thread.start()

    @property
    def valid(self) -> bool:
        """Whether no other client can hold the lock at this moment. The next moment may differ: only the fence protects the next step."""
        return not self.lost.is_set() and not self._over.is_set() and _now() < self._valid_until

    def release(self) -> bool:
        """Releases the lock. Returns whether it was held until now. May be called again."""
        if self._over.is_set():
            return False
        self._over.set()
        self._thread.join()
        if self.lost.is_set():
            return False
        answer = self._client._ask("POST", _path(self.name, "release"), {"hold": self._hold})
        # If the answer to a release was lost, the repeated one finds nothing to release: the hold was ours, unless its time has passed.
        released = bool(answer["released"]) or _now() < self._valid_until
        self._client._end_session(self._session)
        return released

    def _keep_alive(self) -> None:
        while not self.lost.is_set():
            left = self._valid_until - _now()
            if self._over.wait(max(min(left, self._ttl) / 4, 0.02)):
                return
            if not self._send_keep_alive() and _now() >= self._valid_until:
                self._lose("no sign of life was answered in time")

    def _send_keep_alive(self) -> bool:
        """Sends a keep-alive. Returns whether it was answered."""
        asked = _now()
        path = f"/v1/sessions/{self._session}/keep-alive"
        try:
            # An answer after the end of the hold is useless.
            timeout = max(self._valid_until - asked, 0.1)
            alive = self._client._ask("POST", path, tries=1, timeout=timeout)
        except Error as error:
            if error.status == 404:
                self._lose(str(error))
            return False
        for lost in alive["lost"]:
            if lost["hold"] == self._hold:
                self._lose(lost["reason"])
        self._valid_until = asked + alive.get("valid_for_ms", 0) / 1000 * _COUNTED
        return True

    def _lose(self, reason: str) -> None:
        if self._over.is_set() or self.lost.is_set():
            return
        self.reason = reason
        self.lost.set()
        if self._on_lost is not None:
            self._on_lost(self, reason)


def _endpoint(url: str) -> _Endpoint:
    """Parses a URL. No error quotes it: it may contain a token, in a place where none is expected."""
    wrong = ValueError("a url is no address of a daemon: http://host:port or https://host:port is expected, and a token is passed as token=")
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise wrong from None
    if parts.scheme not in ("http", "https") or not host or "@" in url or parts.query or parts.fragment:
        raise wrong
    return _Endpoint(parts.scheme == "https", host, port or 7422)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _path(name: str, verb: str = "") -> str:
    path = "/v1/locks/" + urllib.parse.quote(name, safe="")
    return f"{path}/{verb}" if verb else path


def _error(status: int, text: bytes) -> Error:
    try:
        problem = json.loads(text)
        code, message = str(problem["error"]), str(problem["message"])
    except (ValueError, KeyError, TypeError):
        code, message = "unknown", f"the daemon answers {status}: {text[:200]!r}"
    kind = Busy if status == 409 and code == "busy" else Error
    return kind(message, code, status)
