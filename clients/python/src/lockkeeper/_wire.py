"""Requests and replies of the HTTP API as values, and the order in which daemons are tried. No I/O."""

from __future__ import annotations

import ipaddress
import json
import random
import socket
import urllib.parse
import uuid
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple, Union

from ._errors import Error, is_tls_failure, unreachable

# The longest wait that a daemon accepts in one request, in seconds.
LONGEST_WAIT = 86_400.0
# The time that a connection may take, in seconds.
CONNECT_TIMEOUT = 3.0
# The time that an answer may take beyond the requested wait, in seconds.
ANSWER_TIMEOUT = 10.0
# The time for which a request is repeated while no daemon answers, in seconds.
RETRY_TIMEOUT = 10.0
# The same for a request whose own timeout is shorter than this.
SHORTEST_RETRY_TIMEOUT = 2.0
# The longest text of a response that is read, in bytes.
LONGEST_RESPONSE = 1 << 30
# The daemon's limit for the text in which a candidate's value is sent, in characters.
LONGEST_PURPOSE = 256


@dataclass(frozen=True)
class Endpoint:
    """The address of a daemon."""

    secure: bool
    host: str
    port: int

    @property
    def host_header(self) -> str:
        """The value of the header Host."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True)
class Call:
    """A request that may be repeated. `wait` is the time for which the daemon may let it wait, in seconds."""

    method: str
    path: str
    body: Optional[bytes] = None
    wait: float = 0.0
    answer_timeout: float = ANSWER_TIMEOUT


def endpoints(url: Union[str, Sequence[str]], token: Optional[str], insecure_no_tls: bool) -> List[Endpoint]:
    """Parses the URLs of the daemons of one cluster, and checks that the token would not be sent unencrypted to other machines."""
    urls = [url] if isinstance(url, str) else list(url)
    if not urls:
        raise ValueError("no url was given")
    parsed = [_endpoint(one) for one in urls]
    exposed = [one.host for one in parsed if not one.secure and not _is_loopback(one.host)]
    if token is not None and exposed and not insecure_no_tls:
        raise ValueError(
            f"the token would go to {exposed[0]} unencrypted: write https://, or pass insecure_no_tls=True if the network is trusted"
        )
    return parsed


def _endpoint(url: str) -> Endpoint:
    """Parses a URL. No error quotes it: it may contain a token, in a place where none is expected."""
    wrong = ValueError("a url is no address of a daemon: http://host:port or https://host:port is expected, and a token is passed as token=")
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise wrong from None
    if parts.scheme not in ("http", "https") or not host or "@" in url or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise wrong
    return Endpoint(parts.scheme == "https", host, port or 7422)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def headers(token: Optional[str]) -> Dict[str, str]:
    """The headers of every request."""
    sent = {"accept": "application/json"}
    if token is not None:
        if any(ord(character) < 33 or ord(character) > 126 for character in token):
            raise ValueError("the token contains characters that no token has, perhaps the end of a line")
        sent["authorization"] = f"Bearer {token}"
    return sent


def default_owner(client: str) -> str:
    """The owner that lists show if the caller names none."""
    return f"{socket.gethostname()} ({client})"


def milliseconds(seconds: float) -> int:
    """A time in the unit of the API."""
    return int(seconds * 1000)


def lock_path(name: str, verb: str = "") -> str:
    """The path of a lock."""
    path = "/v1/locks/" + urllib.parse.quote(name, safe="")
    return f"{path}/{verb}" if verb else path


def query(path: str, **parameters: str) -> str:
    """A path with a query string."""
    return f"{path}?{urllib.parse.urlencode(parameters)}"


def new_session(ttl: float, owner: str) -> Call:
    """A request for a session. If the answer is lost, a session without holds remains until its time to live has passed."""
    return Call("POST", "/v1/sessions", _json({"ttl_ms": milliseconds(ttl), "owner": owner}))


def acquire(name: str, mode: Dict[str, Any], session: str, request: str, purpose: str, wait: float) -> Call:
    """A request for a lock. The daemons recognise a repetition by the session and the request id."""
    body = {**mode, "session": session, "request": request, "purpose": purpose, "wait_ms": milliseconds(wait)}
    return Call("POST", lock_path(name, "acquire"), _json(body), wait)


def release(name: str, hold: str) -> Call:
    """A request to release a hold."""
    return Call("POST", lock_path(name, "release"), _json({"hold": hold}))


def keep_alive(session: str, timeout: float) -> Call:
    """A request that extends a session."""
    return Call("POST", f"/v1/sessions/{session}/keep-alive", answer_timeout=timeout)


def end_session(session: str) -> Call:
    """A request that ends a session, with its holds and waiting requests."""
    return Call("DELETE", f"/v1/sessions/{session}")


def force_release(name: str) -> Call:
    """A request that revokes all holds of a lock."""
    return Call("POST", lock_path(name, "force-release"), b"{}")


def hold_as(name: str, mode: Dict[str, Any], owner: str, lasts: float, purpose: str, wait: float) -> Call:
    """A request for a detached hold. A repetition finds the hold by its owner."""
    body = {**mode, "owner": owner, "for_ms": max(milliseconds(lasts), 1), "purpose": purpose, "wait_ms": milliseconds(wait)}
    return Call("POST", lock_path(name, "hold-as"), _json(body), wait)


def find_detached(name: str, owner: str) -> Call:
    """A request for the detached hold that an owner has already."""
    return Call("POST", lock_path(name, "hold-as"), _json({"owner": owner}))


def release_as(name: str, owner: str) -> Call:
    """A request to release the detached hold of an owner."""
    return Call("POST", lock_path(name, "release-as"), _json({"owner": owner}))


def new_request_id() -> str:
    """A request id that no other request has."""
    return str(uuid.uuid4())


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


@dataclass(frozen=True)
class Answer:
    """The answer to a keep-alive, as far as it concerns one hold."""

    valid_for_ms: int
    #: The reason for which the hold was lost, or None.
    lost: Optional[str]


def alive(answer: Dict[str, Any], hold: str) -> Answer:
    """Reads the answer to a keep-alive."""
    for one in answer["lost"]:
        if one["hold"] == hold:
            return Answer(0, str(one["reason"]))
    valid_for_ms = answer.get("valid_for_ms")
    if valid_for_ms is None:
        return Answer(0, "its session holds it no longer")
    return Answer(int(valid_for_ms), None)


@dataclass(frozen=True)
class DetachedHold:
    """A hold of a named owner, without a living process, as it was when it was acquired or looked up."""

    name: str
    owner: str
    #: exclusive, shared or permit
    mode: str
    #: The same for every request of the owner until the hold ends. None for a permit.
    fence: Optional[int]
    #: The time until its deadline, in seconds.
    left: float


def detached_of(answer: Dict[str, Any]) -> DetachedHold:
    """Reads the answer to a request for a detached hold."""
    return DetachedHold(answer["name"], answer["owner"], answer["mode"], answer["fence"] or None, answer["left_ms"] / 1000)


@dataclass(frozen=True)
class Leader:
    """The leader of an election."""

    #: The value that it campaigned with.
    value: str
    #: Its fence, which rises with every change of the leader.
    fence: int
    #: The owner, as the leader's client named itself.
    owner: str


def purpose_of(value: str, owner: str) -> str:
    """The purpose that carries a candidate's value: the same JSON as the Rust library writes and reads."""
    tag = {"holder": owner, "host": "", "pid": 0, "since_ms": 0, "metadata": {"value": value}}
    text = json.dumps(tag, separators=(",", ":"), ensure_ascii=False)
    if len(text) > LONGEST_PURPOSE:
        tag["holder"] = ""
        text = json.dumps(tag, separators=(",", ":"), ensure_ascii=False)
    if len(text) > LONGEST_PURPOSE:
        room = LONGEST_PURPOSE - (len(text) - len(value))
        raise ValueError(f"the value of a candidate has {len(value)} characters: at most about {room} are allowed")
    return text


def leader_of(lock: Dict[str, Any]) -> Optional[Leader]:
    """The leader, given the lock of the election; None if there is none."""
    if not lock["holders"]:
        return None
    holder = lock["holders"][0]
    value = str(holder["purpose"])
    try:
        value = str(json.loads(value)["metadata"]["value"])
    except (ValueError, KeyError, TypeError):
        # Any other lock can be observed, too.
        pass
    return Leader(value, int(holder.get("fence", 0)), str(holder["owner"]))


class Attempts:
    """Decides which daemon a request goes to next, and when the client gives up.

    A round tries every daemon once, without a pause. Between rounds the client pauses for a random time that grows. A daemon with which TLS
    fails is not tried again.
    """

    def __init__(self, count: int, first: int, deadline: Optional[float] = None, retry_timeout: float = RETRY_TIMEOUT) -> None:
        self._count = count
        self._next = first
        self._deadline = deadline
        self._retry_timeout = retry_timeout
        self._tried = 0
        self._failing_since: Optional[float] = None
        self._failure: Optional[BaseException] = None
        self._tls_failures: Set[int] = set()

    def endpoint(self) -> int:
        """The daemon to try now."""
        return self._next

    def failed(self, failure: BaseException, sent: float, now: float) -> Tuple[Optional[Error], float]:
        """Notes a failed attempt. Returns the error if the client gives up, or else the pause before the next attempt."""
        if self._failing_since is None or now - sent > self._retry_timeout:
            # A request that waited for long did reach a daemon.
            self._failing_since = now
        self._failure = failure
        if is_tls_failure(failure):
            self._tls_failures.add(self._next)
        self._tried += 1
        if len(self._tls_failures) == self._count:
            return unreachable(failure, True), 0.0
        self._choose_next()
        rounds, place = divmod(self._tried, self._count)
        if place:
            return None, 0.0
        if rounds > 1 and now >= self._gives_up_at(self._failing_since):
            return unreachable(failure, False), 0.0
        return None, min(0.05 * 2 ** min(rounds, 5), 1.0) * random.uniform(0.5, 1.0)

    def _choose_next(self) -> None:
        for _ in range(self._count):
            self._next = (self._next + 1) % self._count
            if self._next not in self._tls_failures:
                return

    def _gives_up_at(self, failing_since: float) -> float:
        if self._deadline is None:
            return failing_since + self._retry_timeout
        rest = max(self._deadline - failing_since, SHORTEST_RETRY_TIMEOUT)
        return failing_since + min(rest, self._retry_timeout)


def is_retryable(status: int) -> bool:
    """Whether a response means that another attempt, perhaps at another daemon, may succeed."""
    return status == 408 or status >= 500


def is_not_held(error: Error) -> bool:
    """Whether a lookup found that the owner has no detached hold."""
    return error.status == 409 and error.error == "conflict"


def is_over(error: Error) -> bool:
    """Whether the session of a request has ended."""
    return error.error == "no_such_session"
