"""Branching: several pipes out of one, read once.

    source ──> node ──> tap 0 ──> ...
                  └──> tap 1 ──> ...

In each opened graph the taps of a node share a **hub**. The hub reads the node; what another tap still wants waits in
that tap's queue, and more than `buffer_size` of it is an error. Taps of different graphs (two `iter()` calls) know
nothing of each other: each graph reads the source for itself.

A tap is resumed from the start of the epoch: its source is read again, but nothing that was delivered is kept or
copied. Over random access no tap waits for another: every position can be asked for by itself.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from headrace.op import Here, InputCursor, Op
from headrace.tables.ops.columns import close_streams

T = TypeVar("T")


class Hub:
    """What the taps of one node share in one opened graph."""

    def __init__(self, source: Iterator[Any], op: "BranchTap[Any]") -> None:
        self._source = source
        self._op = op
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
            for target, value in self._op.route(number, sample):
                queue = self._waiting.get(target)
                if queue is None:
                    continue
                if self._passed[target]:
                    self._passed[target] -= 1
                else:
                    queue.append(value)
            trouble = self._op.overflow(self._waiting, tap)
            if trouble is not None:
                raise BufferError(trouble)
        return True


class BranchTap(Op[Any, T]):
    """One of several pipes out of a node; write `route`."""

    __slots__ = ()
    number: int
    buffer_size: int

    def flow(self, source: Iterator[Any], here: Here) -> Iterator[T]:
        shared = source.shared() if isinstance(source, InputCursor) else {}
        hub: Hub | None = shared.get("hub")
        # All taps of one opening join before the first is read; whoever comes later belongs to another round.
        if hub is None or hub.started or hub.has(self.number):
            hub = shared["hub"] = Hub(source, self)
        return hub.join(self.number, here.replays)

    def route(self, number: int, sample: Any) -> Iterable[tuple[int, Any]]:
        """Which taps get what out of the sample with this number: all taps of a node agree."""
        raise NotImplementedError(f"{type(self).__name__} must define route()")

    def overflow(self, waiting: dict[int, deque[Any]], tap: int) -> str | None:
        """What is wrong with so much waiting for other taps than this one, if anything is."""
        if self.buffer_size < 0 or sum(len(q) for t, q in waiting.items() if t != tap) <= self.buffer_size:
            return None
        return (
            f"DemultiplexerIterDataPipe buffer overflow, buffer size {self.buffer_size} is insufficient. "
            "Read the branches side by side, or raise buffer_size."
        )
