"""Pace: how many tickets wait at a worker, by how long a ticket takes.

Waking a worker up costs as much as a short ticket. So short tickets go out several at a time: a worker has many of
them, and is given new ones only when half of them are done. A worker whose tickets no other may take (`pinned`) has
many too: while one works on a long ticket, the others have something to do.
"""

from headrace.engine.policy import STRETCH, Policy

SHORT = 1e-3
"""Seconds; a ticket that takes less is short."""


class Pace:
    """What has been learnt of the tickets so far."""

    __slots__ = ("_pinned", "_prefetch", "_usual", "deep", "depth", "low", "rest")

    def __init__(self, policy: Policy) -> None:
        self._prefetch = self.depth = policy.prefetch
        self._pinned = policy.pinned
        self.low = self.depth - 1
        """A worker that has no more tickets than this is given new ones, up to the depth."""
        self.deep = False
        """Workers have more tickets than `prefetch` says."""
        self.rest = 0.0
        """Seconds for which workers need not be looked after, once they were: above 0 while tickets are short."""
        self._usual = 1.0
        """Seconds that a ticket takes, as a moving average."""

    def learn(self, seconds: float) -> None:
        """A ticket took so long."""
        self._usual += 0.1 * (seconds - self._usual)
        short = self._usual < SHORT
        self.deep = short or self._pinned
        self.depth = self._prefetch * STRETCH if self.deep else self._prefetch
        if short:
            self.low = self.depth // 2
            self.rest = self.low * self._usual / 2
        else:
            self.low = self.depth - 1
            self.rest = 0.0
