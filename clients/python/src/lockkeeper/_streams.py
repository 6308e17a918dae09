"""HTTP/1.1 over asyncio's streams, as far as the daemons need it."""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import Any, AsyncIterator, Dict, List, Optional, Tuple

from ._clock import now
from ._errors import Error, error_of
from ._transport import Reply, probe
from ._wire import CONNECT_TIMEOUT, LONGEST_RESPONSE, RETRY_TIMEOUT, Attempts, Call, Endpoint, is_retryable

# Idle connections that are kept for each daemon.
_MOST_IDLE = 8
# The longest line of a header, and of an event: a lock with its holders and waiters.
_LONGEST_LINE = 4 << 20
_MOST_HEADERS = 100
# The daemon sends a line of a watch stream at least every 15 seconds.
_WATCH_TIMEOUT = 60.0


class BadResponse(OSError):
    """The received bytes are no HTTP response."""


class _Connection:
    """A connection to a daemon."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.reusable = True

    def close(self) -> None:
        self.writer.close()


class AsyncTransport:
    """Sends requests to the daemons of one cluster."""

    def __init__(self, endpoints: List[Endpoint], headers: Dict[str, str], context: Optional[ssl.SSLContext]) -> None:
        self.endpoints = endpoints
        self._headers = headers
        self._context = context
        #: The daemon that answered last.
        self.preferred = 0
        self._idle: List[List[_Connection]] = [[] for _ in endpoints]

    async def call(self, call: Call, *, deadline: Optional[float] = None, retry_timeout: float = RETRY_TIMEOUT) -> Reply:
        """Sends a request, and repeats it through the next daemon while no answer arrives."""
        attempts = Attempts(len(self.endpoints), self.preferred, deadline, retry_timeout)
        count = 0
        while True:
            place, sent = attempts.endpoint(), now()
            count += 1
            try:
                value, repeated = await self._attempt(place, call)
            except (OSError, EOFError, asyncio.TimeoutError, Error) as failure:
                if isinstance(failure, Error) and not is_retryable(failure.status):
                    self.preferred = place
                    raise
                error, pause = attempts.failed(failure, sent, now())
                if error is not None:
                    raise error from None if error is failure else failure
            else:
                self.preferred = place
                return Reply(sent, count + repeated, value)
            await asyncio.sleep(pause)

    async def attempt(self, place: int, call: Call) -> Any:
        """Sends a request to one daemon. Raises `Error` for an answer that is an error, and the error of the connection otherwise."""
        return (await self._attempt(place, call))[0]

    async def _attempt(self, place: int, call: Call) -> Tuple[Any, bool]:
        """Sends a request to one daemon. Returns also whether it was sent twice."""
        idle = self._idle[place]
        connection = idle.pop() if idle else None
        if connection is not None:
            try:
                return await self._exchange(place, connection, call), False
            except (asyncio.TimeoutError, TimeoutError):
                raise
            except (OSError, EOFError):
                # The daemon may have closed an idle connection, which does not mean that it fails.
                pass
        return await self._exchange(place, await self._connect(place), call), connection is not None

    async def _connect(self, place: int) -> _Connection:
        to = self.endpoints[place]
        context = (self._context or ssl.create_default_context()) if to.secure else None
        opening = asyncio.open_connection(to.host, to.port, ssl=context, limit=_LONGEST_LINE)
        reader, writer = await asyncio.wait_for(opening, CONNECT_TIMEOUT)
        sock = writer.get_extra_info("socket")
        # None if the daemon has closed the connection already.
        if sock is not None:
            probe(sock)
        return _Connection(reader, writer)

    async def _exchange(self, place: int, connection: _Connection, call: Call) -> Any:
        """Sends a request over a connection. If it fails or is cancelled, the connection is closed, and the daemon withdraws the request."""
        try:
            await self._send(connection, place, call)
            status, text = await asyncio.wait_for(_response(connection), call.wait + call.answer_timeout)
        except BaseException:
            connection.close()
            raise
        if connection.reusable and len(self._idle[place]) < _MOST_IDLE:
            self._idle[place].append(connection)
        else:
            connection.close()
        if status >= 300:
            raise error_of(status, text)
        return json.loads(text) if text else None

    async def _send(self, connection: _Connection, place: int, call: Call) -> None:
        headers = {"host": self.endpoints[place].host_header, **self._headers}
        if call.body is not None:
            headers["content-type"] = "application/json"
        if call.body is not None or call.method == "POST":
            headers["content-length"] = str(len(call.body or b""))
        lines = [f"{call.method} {call.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        connection.writer.write("\r\n".join(lines).encode() + (call.body or b""))
        await connection.writer.drain()

    async def lines(self, path: str, place: int) -> AsyncIterator[bytes]:
        """The lines of an endless response. The first item is empty: the stream is open then."""
        connection = await self._connect(place)
        try:
            await self._send(connection, place, Call("GET", path))
            status, headers = await asyncio.wait_for(_head(connection.reader), CONNECT_TIMEOUT)
            if status != 200:
                raise error_of(status, await asyncio.wait_for(_body(connection, headers), CONNECT_TIMEOUT))
            yield b""
            rest = b""
            while True:
                chunk = await asyncio.wait_for(_chunk(connection.reader), _WATCH_TIMEOUT)
                if not chunk:
                    return
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield line
        finally:
            connection.close()

    def close(self) -> None:
        """Closes the idle connections."""
        idle, self._idle = self._idle, [[] for _ in self.endpoints]
        for connection in (one for connections in idle for one in connections):
            connection.close()


async def _response(connection: _Connection) -> Tuple[int, bytes]:
    status, headers = await _head(connection.reader)
    text = b"" if status in (204, 304) else await _body(connection, headers)
    if headers.get("connection", "").lower() == "close":
        connection.reusable = False
    return status, text


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        line = await reader.readuntil(b"\r\n")
    except asyncio.LimitOverrunError:
        raise BadResponse("a line of the response is too long") from None
    return line[:-2]


async def _head(reader: asyncio.StreamReader) -> Tuple[int, Dict[str, str]]:
    """The status and the headers of a response."""
    version, _, rest = (await _line(reader)).partition(b" ")
    if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
        raise BadResponse("the response is not HTTP/1.1; perhaps the daemon expects https://")
    headers: Dict[str, str] = {}
    for _ in range(_MOST_HEADERS):
        line = await _line(reader)
        if not line:
            return int(rest[:3]), headers
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    raise BadResponse(f"the response has more than {_MOST_HEADERS} headers")


async def _body(connection: _Connection, headers: Dict[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return await _chunks(connection.reader)
    length = headers.get("content-length")
    if length is None:
        connection.reusable = False
        return await connection.reader.read(LONGEST_RESPONSE)
    if not length.isdigit() or int(length) > LONGEST_RESPONSE:
        raise BadResponse("the length of the response is not a number in range")
    return await connection.reader.readexactly(int(length))


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    text = bytearray()
    while True:
        chunk = await _chunk(reader)
        if not chunk:
            return bytes(text)
        text += chunk
        if len(text) > LONGEST_RESPONSE:
            raise BadResponse("the response is too long")


async def _chunk(reader: asyncio.StreamReader) -> bytes:
    """The next chunk of a body; empty at its end."""
    size = (await _line(reader)).split(b";")[0]
    try:
        length = int(size, 16)
    except ValueError:
        raise BadResponse("the length of a chunk is no number") from None
    if not 0 <= length <= LONGEST_RESPONSE:
        raise BadResponse("a chunk is too long")
    chunk = await reader.readexactly(length)
    if await _line(reader):
        raise BadResponse("a chunk is longer than its length says")
    return chunk
