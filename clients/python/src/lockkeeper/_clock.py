"""The clock that validity is counted on: it is never set, and it continues while the machine is suspended."""

from __future__ import annotations

import sys
import time
from typing import Optional


def _clock_that_counts_suspend() -> Optional[int]:
    """The id of the clock, or None if Python offers none on this system."""
    boottime: Optional[int] = getattr(time, "CLOCK_BOOTTIME", None)
    if boottime is None and sys.platform == "darwin":
        # There CLOCK_MONOTONIC counts suspend, and time.monotonic() does not.
        return time.CLOCK_MONOTONIC
    return boottime


_CLOCK = _clock_that_counts_suspend()


def now() -> float:
    """The time in seconds. Where the system has no clock that counts suspend, suspend is not counted."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)
