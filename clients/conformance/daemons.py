"""The daemons that the clients run against: three of one cluster, and one with TLS, tokens and clients' certificates."""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import time
import urllib.parse
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, TextIO, Tuple

# Far longer than any step takes, so that only a hang fails.
LONG = 90.0

_given: List[TextIO] = []


def free_ports(count: int) -> int:
    """The first of so many free ports in a row. No other test gets them: the other tests use the same files."""
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"lockkeeper-ports-{os.geteuid()}"
    folder.mkdir(exist_ok=True)
    while True:
        first = random.randrange(10_240, 32_000)
        files = [open(folder / str(port), "w") for port in range(first, first + count)]
        try:
            for place, file in enumerate(files):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with socket.create_server(("127.0.0.1", first + place)):
                    pass
        except OSError:
            for file in files:
                file.close()
            continue
        _given.extend(files)
        return first


def until(what: str, condition: Callable[[], Any], timeout: float = LONG) -> Any:
    """Waits until a condition holds, and returns its value."""
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited for {timeout:.0f} s: {what}")
        time.sleep(0.02)


class Daemon:
    """A daemon in a process of its own."""

    def __init__(self, binary: str, folder: Path, first_port: int) -> None:
        self._binary = binary
        self._folder = folder
        self.native = first_port + 1
        self.http = first_port + 2
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._log = open(folder / "log", "ab")

    def start(self) -> None:
        """Starts the process."""
        self._process = subprocess.Popen(
            [self._binary, "up", "--config", str(self._folder / "lockkeeper.toml")], stdout=self._log, stderr=self._log, stdin=subprocess.DEVNULL
        )

    def kill(self) -> None:
        """Kills the process as in a crash."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def log(self) -> str:
        """The last lines of its log."""
        return "\n".join((self._folder / "log").read_text(errors="replace").splitlines()[-20:])

    def request(self, method: str, path: str, body: Any = None, timeout: float = 15.0) -> Tuple[int, Any]:
        """Sends a request to this daemon, past all proxies."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=timeout)
        try:
            headers = {"content-type": "application/json"} if body is not None else {}
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            response = connection.getresponse()
            text = response.read()
            return response.status, json.loads(text) if text else None
        finally:
            connection.close()

    def serves(self) -> bool:
        """Whether it grants locks."""
        try:
            return bool(self.request("GET", "/v1/status", timeout=5.0)[1]["serves"])
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
            return False


class Cluster:
    """Three daemons without TLS and without tokens, on loopback."""

    def __init__(self, binary: str, folder: Path) -> None:
        first = free_ports(9)
        members = [first, first + 3, first + 6]
        token = folder / "join-token"
        token.touch(mode=0o600)
        token.write_text("lkjoin_" + os.urandom(32).hex() + "\n")
        self.daemons: List[Daemon] = []
        for number, port in enumerate(members, 1):
            own = folder / f"member-{number}"
            own.mkdir()
            listed = "\n".join(f'{place} = "127.0.0.1:{one}"' for place, one in enumerate(members, 1))
            # Slow times: on a loaded machine a process may pause for long, and these tests are not about speed.
            (own / "lockkeeper.toml").write_text(
                f'cluster = "conformance"\nmember = {number}\ndata = "data"\njoin_token = "../join-token"\ntimes = "slow"\n\n'
                f"[members]\n{listed}\n\n"
                f'[listen]\nmembers = "127.0.0.1:{port}"\nclients = "127.0.0.1:{port + 1}"\nhttp = "127.0.0.1:{port + 2}"\n'
            )
            self.daemons.append(Daemon(binary, own, port))

    def start(self) -> None:
        """Starts all daemons."""
        for daemon in self.daemons:
            daemon.start()

    def wait(self) -> None:
        """Waits until every daemon is in the view and grants locks."""
        for number, daemon in enumerate(self.daemons, 1):
            until(f"daemon {number} grants locks", daemon.serves)
            until(f"daemon {number} sees three members", lambda: self._in_view(daemon) == 3)

    @staticmethod
    def _in_view(daemon: Daemon) -> int:
        try:
            members: List[Dict[str, Any]] = daemon.request("GET", "/v1/members")[1]
        except (OSError, http.client.HTTPException):
            return 0
        return sum(1 for member in members if member.get("in_view") and member.get("reached", True))

    def stop(self) -> None:
        """Ends all daemons."""
        for daemon in self.daemons:
            daemon.kill()

    def lock(self, name: str, daemon: Optional[int] = None) -> Dict[str, Any]:
        """The holders and waiters of a lock, from the given daemon or the first one that answers."""
        places = range(len(self.daemons)) if daemon is None else [daemon]
        for place in places:
            try:
                status, lock = self.daemons[place].request("GET", "/v1/locks/" + urllib.parse.quote(name, safe=""))
            except (OSError, http.client.HTTPException):
                continue
            if status == 200:
                found: Dict[str, Any] = lock
                return found
        return {"name": name, "holders": None, "waiters": None}


class SecureDaemon:
    """A daemon with TLS that needs a token and a client's certificate, and another authority that has nothing to do with it."""

    def __init__(self, binary: str, folder: Path) -> None:
        first = free_ports(3)
        self.token = self._init(binary, folder / "right", first)
        self._init(binary, folder / "wrong", first)
        own = folder / "right" / "member-1"
        config = (own / "lockkeeper.toml").read_text()
        (own / "lockkeeper.toml").write_text('times = "slow"\n' + config + 'client_authority = "authority.pem"\n')
        self.ca, self.wrong_ca = str(folder / "right" / "authority.pem"), str(folder / "wrong" / "authority.pem")
        self.cert, self.key = str(own / "member-1.pem"), str(own / "member-1.key")
        made = subprocess.run(
            [binary, "token", "other", "--acquire", "other/", "--file", str(own / "tokens.toml")], check=True, capture_output=True, text=True
        )
        self.token_of_others = next(word for word in made.stdout.split() if word.startswith("lk_"))
        self.daemon = Daemon(binary, own, first)
        self.daemon.start()

    @staticmethod
    def _init(binary: str, folder: Path, port: int) -> str:
        made = subprocess.run(
            [binary, "cluster", "init", "--members", f"127.0.0.1:{port}", "--out", str(folder)], check=True, capture_output=True, text=True
        )
        return next(word for word in made.stdout.split() if word.startswith("LOCKKEEPER_TOKEN=")).split("=", 1)[1]

    def wait(self) -> None:
        """Waits until it listens."""

        def listens() -> bool:
            try:
                socket.create_connection(("127.0.0.1", self.daemon.http), timeout=5).close()
            except OSError:
                return False
            return True

        until("the daemon with TLS listens", listens)
