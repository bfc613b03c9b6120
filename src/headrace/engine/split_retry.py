"""Split retry: a block of single samples that failed is run again, one ticket for each sample.

The error is about one sample; its neighbours in the block are good. So they are delivered in order: the samples before
it, then the error, then the samples after it. Which sample it was shows only when each is run by itself.
"""

import logging
from collections import deque

from headrace.engine.feeds.place import Feed
from headrace.engine.wire.messages import Reply, Ticket
from headrace.errors import HeadraceError

log = logging.getLogger("headrace")


class SplitRetry:
    """The tickets that a failed block of one stage was split into. They run one after the other, in its place."""

    def __init__(self) -> None:
        self._left: deque[Ticket] = deque()
        self.running: Ticket | None = None
        """The ticket that is being run."""
        self._failed: BaseException | None = None
        """The error of the block, until it has come again."""
        self.waiting: Ticket | None = None
        """The next ticket, until a worker has taken it."""

    def begins(self, feed: Feed, reply: Reply) -> bool:
        """Split the ticket of a reply that is an error; False if it cannot be split, or is a part already."""
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
        """Go on with the next part after this reply; False if it is no part, or was the last one."""
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
