"""Voting: equal step counts for ranks that cannot know their lengths in advance.

Before each handful of steps the ranks vote: each says how many batches it has ready, and all take the smallest number.
When a rank has fewer than a handful, that vote is the last: everybody stops after the same step, and what others had
left over is counted and named in one warning.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

log = logging.getLogger("headrace")
HANDFUL = 8
FAILED = -1


class Voting(Iterator[Any]):
    """The samples of `source`, as far as every rank can follow."""

    def __init__(self, source: Iterator[Any], minimum: Callable[[int], int], handful: int = HANDFUL) -> None:
        self._source = source
        self._minimum = minimum
        self._handful = handful
        self._ready: deque[Any] = deque()
        self._granted = 0
        self._over = False
        self.surplus = 0
        """Batches of this rank that could not be delivered."""

    def __next__(self) -> Any:
        if not self._granted:
            if self._over:
                raise StopIteration
            self._vote()
            if not self._granted:
                raise StopIteration
        self._granted -= 1
        return self._ready.popleft()

    def _vote(self) -> None:
        try:
            while len(self._ready) < self._handful:
                self._ready.append(next(self._source))
        except StopIteration:
            pass
        except BaseException:
            self._over = True
            self._minimum(FAILED)
            raise
        granted = self._minimum(len(self._ready))
        if granted == FAILED:
            self._over = True
            raise RuntimeError("another rank failed; its own error says why")
        self._granted = granted
        if granted < self._handful:
            self._over = True
            self._count_surplus()

    def _count_surplus(self) -> None:
        self.surplus = len(self._ready) - self._granted + sum(1 for _ in self._source)
        if self.surplus:
            log.warning(
                "%d batches of this rank are left out, because another rank has no more; "
                "every rank takes the same number of steps",
                self.surplus,
            )
