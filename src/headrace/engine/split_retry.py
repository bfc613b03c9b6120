"""SplitRetry: a block of single samples of which one failed, run again sample by sample.

An error is about one sample. Its good neighbours in the block are delivered, in order: those before it, then the error,
then those behind it. Only then is it known which one it was, so each is a ticket of its own, one at a time.
"""

import logging
from collections import deque

from headrace.engine.feeds.place import Feed
from headrace.engine.wire.messages import Reply, Ticket
from headrace.errors import HeadraceError

log = logging.getLogger("headrace")


class SplitRetry:
    """Of one stage, what is left of a block that failed; it takes the place of the block's ticket."""

    def __init__(self) -> None:
        self._left: deque[Ticket] = deque()
        self.running: Ticket | None = None
        """The part that is being run."""
        self._failed: BaseException | None = None
        self.waiting: Ticket | None = None
        """A ticket that nobody has taken yet."""

    def begins(self, feed: Feed, reply: Reply) -> bool:
        """Whether this error is one of a block, which is run again in parts now."""
        if reply.ticket is self.running or isinstance(reply.error, HeadraceError):
            return False
        parts = feed.split(reply.ticket)
        if not parts:
            return False
        self._left.extend(parts)
        for ticket in parts:
            ticket.order, ticket.pin = reply.ticket.order, reply.ticket.pin
        self._failed = reply.error
        self._next()
        return True

    def continues(self, reply: Reply) -> bool:
        """Whether more comes behind this part of a block: that is the next ticket now."""
        if reply.ticket is not self.running:
            return False
        if reply.error is not None:
            self._failed = None
        if self._left:
            self._next()
            return True
        if self._failed is not None:
            log.warning("an error did not come again when its samples were run one by one: %r", self._failed)
        self.running = self._failed = None
        return False

    def _next(self) -> None:
        self.running = self.waiting = self._left.popleft()
