"""The arithmetic of leases, without a clock and without I/O: times are arguments."""

from __future__ import annotations

# The counted part of a reported validity. While chrony corrects a clock, the clock may run slow by up to 1/12: more time has passed than it
# shows. The daemon leaves a tenth for this, too; a client does not rely on that.
COUNTED = 11 / 12
# The shortest time in which a daemon can be expected to answer a keep-alive, in seconds.
SHORTEST_TIMEOUT = 0.2
# The longest time without a look at the clock, in seconds: timers stand still while the machine is suspended, the clock does not.
LONGEST_SLEEP = 0.5


class Lease:
    """The time in which a hold is valid. It counts from sending the request that renewed it: the daemon may have answered at once."""

    def __init__(self, sent: float, valid_for_ms: int) -> None:
        self._sent = sent
        self._until = sent
        self.renew(sent, valid_for_ms)

    def renew(self, sent: float, valid_for_ms: int) -> None:
        """Counts the validity that the answer to a request reports; `sent` is the time at which the request was sent."""
        self._sent = sent
        self._until = sent + valid_for_ms / 1000 * COUNTED

    def left(self, now: float) -> float:
        """The remaining validity in seconds; 0 if it has passed."""
        return max(self._until - now, 0.0)

    def is_fresh(self, now: float) -> bool:
        """Whether most of the validity remains. An acquire may wait for long, so that its answer is worth little."""
        return now < self._sent + (self._until - self._sent) / 2

    def renewal_in(self, now: float) -> float:
        """The time until the next keep-alive, in seconds: a third of the validity after the last one was sent."""
        return max(self._sent + (self._until - self._sent) / 3 - now, 0.0)

    def timeout(self, now: float) -> float:
        """The time that one keep-alive may take: half of the rest, so that another daemon can be tried before the end."""
        return max(min(self.left(now) / 2, 5.0), SHORTEST_TIMEOUT)
