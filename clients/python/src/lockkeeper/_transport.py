"""Blocking HTTP/1.1 connections to the daemons."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from ._clock import now
from ._errors import Cancelled, Error, error_of
from ._wire import CONNECT_TIMEOUT, LONGEST_RESPONSE, RETRY_TIMEOUT, Attempts, Call, Endpoint, is_retryable

# Idle connections that are kept for each daemon.
_MOST_IDLE = 8
# The daemon sends a line of a watch stream at least every 15 seconds.
_WATCH_TIMEOUT = 60.0


class Cancel:
    """Cancels a request from another thread: pass it to `acquire`, and call `cancel`."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._mutex = threading.Lock()
        self._callbacks: Dict[int, Callable[[], None]] = {}
        self._next = 0

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._event.is_set()

    def cancel(self) -> None:
        """Cancels the request: it raises `Cancelled`, and gives up its place in the queue."""
        with self._mutex:
            self._event.set()
            callbacks = list(self._callbacks.values())
        for callback in callbacks:
            callback()

    def wait(self, timeout: float) -> bool:
        """Waits until `cancel` is called, for at most so many seconds."""
        return self._event.wait(timeout)

    @contextlib.contextmanager
    def calls(self, callback: Callable[[], None]) -> Iterator[None]:
        """Has the callback called at the cancellation, until the block ends."""
        with self._mutex:
            place = self._next
            self._next += 1
            self._callbacks[place] = callback
            already = self._event.is_set()
        if already:
            callback()
        try:
            yield
        finally:
            with self._mutex:
                del self._callbacks[place]


@dataclass(frozen=True)
class Reply:
    """The answer of a daemon."""

    #: The time at which the answered request was sent.
    sent: float
    #: The number of times that the request was sent.
    attempts: int
    value: Any


class Transport:
    """Sends requests to the daemons of one cluster."""

    def __init__(self, endpoints: List[Endpoint], headers: Dict[str, str], context: Optional[ssl.SSLContext]) -> None:
        self.endpoints = endpoints
        self._headers = headers
        self._context = context
        #: The daemon that answered last.
        self.preferred = 0
        self._mutex = threading.Lock()
        self._idle: List[List[http.client.HTTPConnection]] = [[] for _ in endpoints]

    def call(
        self, call: Call, *, deadline: Optional[float] = None, cancel: Optional[Cancel] = None, retry_timeout: float = RETRY_TIMEOUT
    ) -> Reply:
        """Sends a request, and repeats it through the next daemon while no answer arrives."""
        attempts = Attempts(len(self.endpoints), self.preferred, deadline, retry_timeout)
        count = 0
        while True:
            place, sent = attempts.endpoint(), now()
            count += 1
            try:
                value, repeated = self._attempt(place, call, cancel)
            except Cancelled:
                raise
            except (OSError, http.client.HTTPException, Error) as failure:
                if isinstance(failure, Error) and not is_retryable(failure.status):
                    self.preferred = place
                    raise
                error, pause = attempts.failed(failure, sent, now())
                if error is not None:
                    raise error from None if error is failure else failure
            else:
                self.preferred = place
                return Reply(sent, count + repeated, value)
            if cancel is not None:
                cancel.wait(pause)
            else:
                time.sleep(pause)

    def attempt(self, place: int, call: Call) -> Any:
        """Sends a request to one daemon. Raises `Error` for an answer that is an error, and the error of the connection otherwise."""
        return self._attempt(place, call, None)[0]

    def _attempt(self, place: int, call: Call, cancel: Optional[Cancel]) -> Tuple[Any, bool]:
        """Sends a request to one daemon. Returns also whether it was sent twice."""
        if cancel is not None and cancel.cancelled:
            raise Cancelled("the request was cancelled", "cancelled")
        connection, reused = self._take(place)
        repeated = False
        try:
            status, text = self._exchange(connection, call, cancel)
        except (OSError, http.client.HTTPException) as failure:
            connection.close()
            if cancel is not None and cancel.cancelled:
                raise Cancelled("the request was cancelled", "cancelled") from None
            if not reused or isinstance(failure, socket.timeout):
                raise
            # The daemon may have closed an idle connection, which does not mean that it fails.
            connection, _ = self._take(place, fresh=True)
            repeated = True
            try:
                status, text = self._exchange(connection, call, cancel)
            except BaseException as failure:
                connection.close()
                if cancel is not None and cancel.cancelled and isinstance(failure, (OSError, http.client.HTTPException)):
                    raise Cancelled("the request was cancelled", "cancelled") from None
                raise
        except BaseException:
            connection.close()
            raise
        self._give_back(place, connection)
        if status >= 300:
            raise error_of(status, text)
        return json.loads(text) if text else None, repeated

    def _exchange(self, connection: http.client.HTTPConnection, call: Call, cancel: Optional[Cancel]) -> Tuple[int, bytes]:
        if connection.sock is None:
            connection.timeout = min(CONNECT_TIMEOUT, call.wait + call.answer_timeout)
            _connect(connection)
        connection.sock.settimeout(call.wait + call.answer_timeout)
        headers = self._headers if call.body is None else {**self._headers, "content-type": "application/json"}
        with _interrupted(connection, cancel):
            connection.request(call.method, call.path, body=call.body, headers=headers)
            response = connection.getresponse()
            text = _read(response)
        return response.status, text

    def lines(self, path: str, place: int, cancel: Optional[Cancel] = None) -> Iterator[bytes]:
        """The lines of an endless response. The first item is empty: the stream is open then."""
        connection, _ = self._take(place, fresh=True)
        try:
            _connect(connection)
            connection.sock.settimeout(_WATCH_TIMEOUT)
            with _interrupted(connection, cancel):
                connection.request("GET", path, headers=self._headers)
                response = connection.getresponse()
                if response.status != 200:
                    raise error_of(response.status, _read(response))
                yield b""
                yield from response
        finally:
            connection.close()

    def _take(self, place: int, fresh: bool = False) -> Tuple[http.client.HTTPConnection, bool]:
        with self._mutex:
            idle = self._idle[place]
            if idle and not fresh:
                return idle.pop(), True
        to = self.endpoints[place]
        if to.secure:
            return http.client.HTTPSConnection(to.host, to.port, timeout=CONNECT_TIMEOUT, context=self._context), False
        return http.client.HTTPConnection(to.host, to.port, timeout=CONNECT_TIMEOUT), False

    def _give_back(self, place: int, connection: http.client.HTTPConnection) -> None:
        with self._mutex:
            if connection.sock is not None and len(self._idle[place]) < _MOST_IDLE:
                self._idle[place].append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Closes the idle connections."""
        with self._mutex:
            idle, self._idle = self._idle, [[] for _ in self.endpoints]
        for connection in (one for connections in idle for one in connections):
            connection.close()


def _read(response: http.client.HTTPResponse) -> bytes:
    """Reads a response to its end, in pieces: Python 3.9 allocates as much as a read may return at most."""
    text = bytearray()
    while True:
        piece = response.read(1 << 16)
        if not piece:
            return bytes(text)
        text += piece
        if len(text) > LONGEST_RESPONSE:
            raise http.client.HTTPException("the response is too long")


def _connect(connection: http.client.HTTPConnection) -> None:
    connection.connect()
    probe(connection.sock)


def probe(sock: socket.socket) -> None:
    """Has the system detect within 15 seconds that the other machine has vanished, while a request waits."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 2)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


@contextlib.contextmanager
def _interrupted(connection: http.client.HTTPConnection, cancel: Optional[Cancel]) -> Iterator[None]:
    """Shuts the connection down at a cancellation, so that a thread that waits for the answer goes on."""
    if cancel is None:
        yield
        return
    sock = connection.sock

    def shut_down() -> None:
        with contextlib.suppress(OSError):
            # That of SSLSocket would first drop the TLS state that the waiting thread uses.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)

    with cancel.calls(shut_down):
        yield
