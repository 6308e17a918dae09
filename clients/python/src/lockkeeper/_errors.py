"""Errors of the client. Each has a code for programs (`error`) and the HTTP status, 0 if no daemon answered."""

from __future__ import annotations

import json
import ssl
from typing import Optional

__all__ = ["Busy", "Cancelled", "Error", "Lost", "Refused", "Unreachable"]


class Error(Exception):
    """A daemon rejected a request, or none could be reached."""

    def __init__(self, message: str, error: str = "unknown", status: int = 0) -> None:
        super().__init__(message)
        self.error = error
        self.status = status


class Busy(Error):
    """The lock was not free in time."""


class Refused(Error):
    """The token is missing, is not valid, or does not allow the request."""


class Unreachable(Error):
    """No daemon answered in time. `error` is `tls` if TLS failed with every daemon, else `unreachable`."""


class Cancelled(Error):
    """The caller cancelled the request."""


class Lost(Error):
    """The hold ended before it was released."""


def error_of(status: int, text: bytes) -> Error:
    """The error of a response."""
    try:
        problem = json.loads(text)
        code, message = str(problem["error"]), str(problem["message"])
    except (ValueError, KeyError, TypeError):
        code, message = "unknown", f"the daemon answers {status}: {text[:200]!r}"
    if status == 409 and code == "busy":
        return Busy(message, code, status)
    if status in (401, 403):
        return Refused(message, code, status)
    return Error(message, code, status)


def is_tls_failure(failure: BaseException) -> bool:
    """Whether TLS itself failed, so that another attempt at the same daemon would fail too."""
    if isinstance(failure, (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)):
        return False
    return isinstance(failure, ssl.SSLError)


def unreachable(failure: BaseException, tls: bool) -> Error:
    """The error after the last attempt failed."""
    if isinstance(failure, Error):
        return failure
    if tls:
        why = f"TLS with no daemon works: {failure}; check the URL, the authority (ca) and the certificate of the daemon"
        return Unreachable(why, "tls")
    shown = str(failure) or type(failure).__name__
    return Unreachable(f"no daemon can be reached: {shown}", "unreachable")


def cancelled(name: str) -> Cancelled:
    """The error of a cancelled request for a lock."""
    return Cancelled(f"the request for `{name}` was cancelled", "cancelled")


def lost(name: str, reason: Optional[str]) -> Lost:
    """The error for a hold that was lost."""
    return Lost(f"the lock `{name}` was lost: {reason or 'its session has ended'}", "lost")
