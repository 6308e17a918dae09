"""One client under test: its runner process, its proxies, and the other client that contends with it."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import threading
import time
import urllib.parse
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from daemons import LONG, Cluster, SecureDaemon
from proxy import Loop, Proxy

Result = Dict[str, Any]


class Runner:
    """The process that carries out commands with a client: JSON lines in both directions."""

    def __init__(self, command: List[str], log: Any) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        self._results: Dict[int, queue.Queue[Tuple[float, Result]]] = {}
        self._next = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            result = json.loads(line)
            if "event" not in result:
                self._results[result["id"]].put((time.monotonic(), result))
        for waiting in self._results.values():
            waiting.put((time.monotonic(), {"error": "died", "message": "the runner has ended; see its log"}))

    def send(self, command: Result) -> int:
        """Sends a command, and returns its number."""
        self._next += 1
        self._results[self._next] = queue.Queue()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": self._next, **command}).encode() + b"\n")
        self._process.stdin.flush()
        return self._next

    def result(self, number: int) -> Tuple[float, Result]:
        """Waits for the result of a command, and returns the time of its arrival too."""
        try:
            return self._results[number].get(timeout=LONG)
        except queue.Empty:
            raise AssertionError(f"the client did nothing for {LONG:.0f} s") from None

    def pause(self) -> None:
        """Stops the process."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continues the process."""
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Kills the process."""
        self._process.kill()
        self._process.wait()


class OtherClient:
    """A client of the suite itself: plain HTTP requests to the last daemon, which no scenario kills."""

    def __init__(self, cluster: Cluster) -> None:
        self._daemon = cluster.daemons[-1]
        self._hold: Optional[Result] = None

    def acquire(self, name: str, wait_ms: int) -> Optional[str]:
        """Acquires a lock; returns the code of the error."""
        path = f"/v1/locks/{urllib.parse.quote(name, safe='')}/acquire"
        status, answer = self._daemon.request("POST", path, {"wait_ms": wait_ms, "ttl_ms": 600_000, "owner": "the suite"}, wait_ms / 1000 + LONG)
        if status != 200:
            return str(answer["error"])
        self._hold = answer
        return None

    def release(self) -> None:
        """Releases its lock."""
        if self._hold is not None:
            path = f"/v1/locks/{urllib.parse.quote(self._hold['name'], safe='')}/release"
            self._daemon.request("POST", path, {"hold": self._hold["hold"]}, LONG)
            self._hold = None


@dataclass
class Environment:
    """The state that all clients share."""

    cluster: Cluster
    secure: SecureDaemon
    loop: Loop


class Column:
    """A client under test."""

    def __init__(self, name: str, command: List[str], environment: Environment, log: Any) -> None:
        self.name = name
        self._command = command
        self._environment = environment
        self._log = log
        loop, cluster = environment.loop, environment.cluster
        self._http = [Proxy(loop, daemon.http).start() for daemon in cluster.daemons]
        self._native = [Proxy(loop, daemon.native).start() for daemon in cluster.daemons]
        # A certificate for 127.0.0.1 is not one for this address.
        secure = environment.secure.daemon
        self._elsewhere = [Proxy(loop, port, "127.0.0.2").start() for port in (secure.http, secure.native)]

    def start(self) -> Runner:
        """Starts a runner."""
        return Runner(self._command, self._log)

    def proxies(self, daemon: Optional[int]) -> List[Proxy]:
        """The proxies in front of a daemon, or all."""
        return [one for place in range(len(self._http)) if daemon in (None, place) for one in (self._http[place], self._native[place])]

    def address(self, to: str) -> Result:
        """The arguments of `open` that name daemons."""
        if to == "cluster":
            urls = [f"http://127.0.0.1:{proxy.port}" for proxy in self._http]
            return {"urls": urls, "native": [f"127.0.0.1:{proxy.port}" for proxy in self._native], "tls": False}
        daemon = self._environment.secure.daemon
        scheme = "http" if to == "secure in plain text" else "https"
        host, http, native = "127.0.0.1", daemon.http, daemon.native
        if to == "secure elsewhere":
            host, http, native = "127.0.0.2", self._elsewhere[0].port, self._elsewhere[1].port
        return {"urls": [f"{scheme}://{host}:{http}"], "native": [f"{host}:{native}"], "tls": scheme == "https"}

    def credentials(self, step: Result) -> Result:
        """The arguments of `open` that are credentials."""
        secure = self._environment.secure
        tokens = {"right": secure.token, "other": secure.token_of_others, "wrong": "lk_" + 64 * "0"}
        authorities = {"right": secure.ca, "wrong": secure.wrong_ca}
        given: Result = {}
        if "token" in step:
            given["token"] = tokens[step["token"]]
        if "ca" in step:
            given["ca"] = authorities[step["ca"]]
        if step.get("cert"):
            given["cert"], given["key"] = secure.cert, secure.key
        return given
