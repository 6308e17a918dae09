"""Locks of lockkeeper's daemons. Standard library only, Python 3.9 or later.

    from lockkeeper import Client

    with Client("http://127.0.0.1:7422").lock("nightly", wait=10) as hold:
        store.write(report, fence=hold.fence)    # the store refuses lower fences

While a lock is held, a thread sends keep-alives. If the hold is lost all the same (an operator revoked it, or no daemon can be reached),
`hold.lost` is set, the `on_lost` callback is called, and leaving the `with` block raises `Lost`. `lockkeeper.aio` has the same for asyncio;
there a loss cancels the task in the block.

`hold.valid` is counted on a clock that continues while the machine is suspended (CLOCK_BOOTTIME on Linux).
"""

from ._client import Candidate, Client, Election, Leadership, Lock
from ._errors import Busy, Cancelled, Error, Lost, Refused, Unreachable
from ._hold import Hold
from ._transport import Cancel
from ._wire import DetachedHold, Leader

__all__ = [
    "Busy",
    "Cancel",
    "Cancelled",
    "Candidate",
    "Client",
    "DetachedHold",
    "Election",
    "Error",
    "Hold",
    "Leader",
    "Leadership",
    "Lock",
    "Lost",
    "Refused",
    "Unreachable",
]
