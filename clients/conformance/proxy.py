"""The fault proxy: between a client and a daemon, it passes bytes on, and loses, delays or cuts them on demand.

It knows nothing of protocols, so that every client meets the same faults, over HTTP and over the native protocol.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from typing import Any, Coroutine, Optional, Set


@dataclass
class Faults:
    """The faults that a proxy applies to the bytes at present."""

    #: Answers are lost: those of every connection, or those of a connection over which this text was sent.
    lose_answers: bool = False
    lose_answers_after: Optional[bytes] = None
    #: Nothing arrives anywhere, and no connection is closed: a network that drops packets.
    silent: bool = False
    #: New connections are closed at once.
    refuse: bool = False
    #: Answers arrive so many seconds later.
    delay: float = 0.0


class Loop:
    """An event loop in a thread, for all proxies."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def run(self, what: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self.loop).result(60)


@dataclass(eq=False)
class Proxy:
    """A proxy in front of one port of a daemon. `host` is the address that it listens at."""

    loop: Loop
    to: int
    host: str = "127.0.0.1"
    faults: Faults = field(default_factory=Faults)
    port: int = 0
    _writers: Set[asyncio.StreamWriter] = field(default_factory=set)

    def start(self) -> Proxy:
        """Starts to listen."""

        async def listen() -> None:
            server = await asyncio.start_server(self._serve, self.host, 0)
            self.port = server.sockets[0].getsockname()[1]

        self.loop.run(listen())
        return self

    def set(self, faults: Faults) -> None:
        """Replaces the faults. Lost bytes stay lost."""
        self.faults = faults

    def cut(self) -> None:
        """Closes all connections."""

        async def close() -> None:
            for writer in list(self._writers):
                writer.transport.abort()

        self.loop.run(close())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        connection = _Connection(self, writer)
        try:
            if not self.faults.refuse:
                await connection.run(reader)
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()


class _Connection:
    """A connection of a client through a proxy."""

    def __init__(self, proxy: Proxy, to_client: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._to_client = to_client
        self._loses_answers = False
        # The end of what the client has sent: a text that is searched for may arrive in two pieces.
        self._sent = b""

    async def run(self, from_client: asyncio.StreamReader) -> None:
        from_daemon, to_daemon = await asyncio.open_connection("127.0.0.1", self._proxy.to)
        directions = [
            asyncio.ensure_future(self._pass_requests(from_client, to_daemon)),
            asyncio.ensure_future(self._pass_answers(from_daemon)),
        ]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            # A network that drops packets drops the end of a connection, too.
            while self._proxy.faults.silent:
                await asyncio.sleep(0.05)
        finally:
            for direction in directions:
                direction.cancel()
            to_daemon.transport.abort()

    async def _pass_requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            bytes_read = await reader.read(1 << 16)
            if not bytes_read:
                return
            self._sent = (self._sent + bytes_read)[-(1 << 17) :]
            after = self._proxy.faults.lose_answers_after
            if after is not None and after in self._sent:
                self._loses_answers = True
            if not self._proxy.faults.silent:
                writer.write(bytes_read)
                await writer.drain()

    async def _pass_answers(self, reader: asyncio.StreamReader) -> None:
        loop = asyncio.get_running_loop()
        while True:
            bytes_read = await reader.read(1 << 16)
            faults = self._proxy.faults
            if faults.silent or faults.lose_answers or self._loses_answers:
                if bytes_read:
                    continue
                return
            if not bytes_read:
                await asyncio.sleep(faults.delay)
                return
            # Delayed bytes keep their order: calls of one delay run in the order in which they were made.
            loop.call_later(faults.delay, self._deliver, bytes_read)

    def _deliver(self, answer: bytes) -> None:
        if not self._to_client.transport.is_closing():
            self._to_client.write(answer)
