"""Branching: several pipes out of one, read once.

    source ──> node ──> tap 0 ──> ...
                  └──> tap 1 ──> ...

In each opened graph the taps of a node share a `SharedReader`, which reads the node. Samples that another tap has not
asked for yet wait in that tap's queue, and more than `buffer_size` of them is an error. Taps of different graphs (two
`iter()` calls) share nothing: each graph reads the source for itself.

A tap is resumed from the start of the epoch: its source is read again, but nothing that was delivered is kept or
copied. Over random access no tap waits for another: every position can be asked for by itself.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from headrace.op import Here, InputCursor, Op
from headrace.tables.ops.columns import close_streams

T = TypeVar("T")


class SharedReader:
    """Reads a node for all its taps in one opened graph, with a queue for each tap."""

    def __init__(self, source: Iterator[Any], op: "BranchTap[Any]") -> None:
        self._source = enumerate(source)
        self._op = op
        self._waiting: dict[int, deque[Any]] = {}
        self._passed: dict[int, int] = {}
        """How many samples each resumed tap has delivered before: these are read again, but not queued."""
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
                yield None  # the engine drops these: they were delivered before the resume
            queue = self._waiting[tap]
            while queue or self._pull(tap):
                yield queue.popleft()
        finally:
            for sample in self._waiting.pop(tap):
                close_streams(sample)

    def _pull(self, tap: int) -> bool:
        """Read until there is something for this tap; False at the end."""
        self.started = True
        for number, sample in self._source:
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
            if self._waiting[tap]:
                return True
        return False


class BranchTap(Op[Any, T]):
    """One of several pipes out of a node; write `route`."""

    __slots__ = ()
    number: int
    buffer_size: int

    def flow(self, source: Iterator[Any], here: Here) -> Iterator[T]:
        shared = source.shared() if isinstance(source, InputCursor) else {}
        reader: SharedReader | None = shared.get("reader")
        # All taps of one opening join before the first is read; a tap that comes later belongs to another opening.
        if reader is None or reader.started or reader.has(self.number):
            reader = shared["reader"] = SharedReader(source, self)
        return reader.join(self.number, here.replays)

    def route(self, number: int, sample: Any) -> Iterable[tuple[int, Any]]:
        """(tap, value) for each tap that gets something of the sample with this number; the same from every tap."""
        raise NotImplementedError(f"{type(self).__name__} must define route()")

    def overflow(self, waiting: dict[int, deque[Any]], tap: int) -> str | None:
        """The text of an error if too many samples wait for other taps than this one; else None."""
        if self.buffer_size < 0 or sum(len(q) for t, q in waiting.items() if t != tap) <= self.buffer_size:
            return None
        return (
            f"DemultiplexerIterDataPipe buffer overflow, buffer size {self.buffer_size} is insufficient. "
            "Read the branches side by side, or raise buffer_size."
        )
