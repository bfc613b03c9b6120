"""Branching: several pipes out of one, read once.

    source ──> node ──> tap 0 ──> ...
                  └──> tap 1 ──> ...

In each opened graph the taps of a node share a **hub**. The hub reads the node; what another tap still wants waits in
that tap's queue, and more than `buffer_size` of it is an error. Taps of different graphs (two `iter()` calls) know
nothing of each other: each graph reads the source for itself.

A tap is resumed from the start of the epoch: its source is read again, but nothing that was delivered is kept or
copied. Over random access no tap waits for another: every position can be asked for by itself.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from headrace.op import Here, InputCursor
from headrace.tables.ops.columns import close_streams

Route = Callable[[int, Any], Iterable[tuple[int, Any]]]
"""Which taps get what out of the sample with this number."""
Overflow = Callable[[dict[int, deque[Any]], int], str | None]
"""What is wrong with so much waiting for other taps than this one, if anything is."""


class Hub:
    """What the taps of one node share in one opened graph."""

    def __init__(self, source: Iterator[Any], route: Route, overflow: Overflow):
        self._source = source
        self._route = route
        self._overflow = overflow
        self._read = 0
        self._waiting: dict[int, deque[Any]] = {}
        self._passed: dict[int, int] = {}
        """Samples that a resumed tap has delivered already: they are read, not kept."""
        self.started = False

    def has(self, tap: int) -> bool:
        return tap in self._waiting

    def join(self, tap: int, delivered: int) -> Iterator[Any]:
        self._waiting[tap] = deque()
        self._passed[tap] = delivered
        return self._samples(tap, delivered)

    def _samples(self, tap: int, delivered: int) -> Iterator[Any]:
        try:
            for _ in range(delivered):
                yield None  # dropped by whoever asked to go on from here
            mine = self._waiting[tap]
            while mine or self._pull(tap):
                yield mine.popleft()
        finally:
            for sample in self._waiting.pop(tap):
                close_streams(sample)

    def _pull(self, tap: int) -> bool:
        """Read until there is something for this tap; False at the end."""
        self.started = True
        mine = self._waiting[tap]
        while not mine:
            try:
                sample = next(self._source)
            except StopIteration:
                return False
            number = self._read
            self._read += 1
            for target, value in self._route(number, sample):
                queue = self._waiting.get(target)
                if queue is None:
                    continue
                if self._passed[target]:
                    self._passed[target] -= 1
                else:
                    queue.append(value)
            trouble = self._overflow(self._waiting, tap)
            if trouble is not None:
                raise BufferError(trouble)
        return True


def tapped(
    source: Iterator[Any],
    here: Here,
    tap: int,
    route: Route,
    overflow: Overflow,
) -> Iterator[Any]:
    """The samples of one tap, through the hub that this graph's taps of the same node share."""
    shared = source.shared() if isinstance(source, InputCursor) else {}
    hub: Hub | None = shared.get("hub")
    # All taps of one opening join before the first is read; whoever comes later belongs to another round.
    if hub is None or hub.started or hub.has(tap):
        hub = shared["hub"] = Hub(source, route, overflow)
    return hub.join(tap, here.replays)


class Memo:
    """The last sample of a branching over random access: its taps usually ask for the same position in turn."""

    def __init__(self) -> None:
        self._local = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:
        return (Memo, ())

    def through(self, fetch: Callable[[int], Any], seed: int, readers: int) -> Callable[[int], Any]:
        local = self._local

        def get(position: int) -> Any:
            at, sample, left = getattr(local, "last", (None, None, 0))
            if at != (seed, position) or not left:
                sample, left = fetch(position), readers
            # Each reader is served once: who comes again may have changed the sample that it was given.
            local.last = ((seed, position), sample, left - 1) if left > 1 else (None, None, 0)
            return sample

        return get
