"""Streams before a shard point, read once in each process for all copies of the graph that run there.

    stream ──> shard point ──> copy 0, 4, 8, ...        in worker 0 of 4
    stream ──> shard point ──> copy 1, 5, 9, ...        in worker 1 of 4

Each copy takes every `count`-th sample. The copy that needs a sample first reads the stream up to it, and keeps for the
other copies of its process the samples that are theirs; those of copies in other processes are dropped. A copy that is
left far behind, or that starts again after its worker died, reads the stream by itself.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from headrace.op import Here, Op
from headrace.plan.seed import key, seed_globals

MOST_KEPT = 4096
"""Samples that are kept for a copy that does not ask for them."""


class SharedStream:
    """One pass over a stream, shared by the copies of one process."""

    def __init__(self, pass_: tuple[int, int], samples: Iterator[Any], count: int, copies: frozenset[int]) -> None:
        self.pass_ = pass_
        """Epoch and seed of the pass."""
        self._samples = samples
        self._count = count
        self._read = 0
        self._kept: dict[int, deque[Any]] = {number: deque() for number in copies}
        self._joined: set[int] = set()
        self._error: Exception | None = None

    def join(self, number: int) -> bool:
        """Let a copy read from the start; False if the copy has read already, or is not of this process."""
        if number in self._joined or number not in self._kept:
            return False
        self._joined.add(number)
        return True

    def samples(self, number: int, alone: Iterator[Any]) -> Iterator[Any]:
        """The samples of a copy; `alone` is the stream for this copy only, which it reads when it is left behind."""
        taken = 0
        while number in self._kept:
            if self._kept[number]:
                yield self._kept[number].popleft()
                taken += 1
            elif not self._read_on():
                return
        yield from islice(alone, number + taken * self._count, None, self._count)

    def _read_on(self) -> bool:
        """Read one more sample and keep it for its copy; False at the end of the stream."""
        if self._error is not None:
            raise self._error  # the stream ended there, for every copy
        try:
            sample = next(self._samples)
        except StopIteration:
            return False
        except Exception as error:
            self._error = error
            raise
        number = self._read % self._count
        self._read += 1
        if (kept := self._kept.get(number)) is not None:
            kept.append(sample)
            if len(kept) > MOST_KEPT:
                del self._kept[number]
        return True


@dataclass(frozen=True, slots=True, eq=False)
class StreamShard(Op[Any, Any]):
    """A shard point behind a stream, in one copy of the graph: every `count`-th sample, from `number` on."""

    count: int
    number: int
    point: int
    """Which shard point of the graph this is."""
    copies: frozenset[int]
    """The numbers of the copies that run in this process."""
    streams: dict[int, SharedStream] = field(repr=False)
    """The stream that this process reads now, by shard point."""

    def identity(self) -> tuple[Any, ...]:
        return ("stream_shard", self.count, self.number, self.point)

    def flow(self, samples: Any, here: Here) -> Iterator[Any]:
        stream = self.streams.get(self.point)
        pass_ = (here.epoch, here.seed)
        if stream is None or stream.pass_ != pass_ or not stream.join(self.number):
            # Opened once more: the copy's own cursor stays at its start, in case that it has to read alone.
            shared = samples.reopened(turn=samples.turn)
            stream = SharedStream(pass_, shared, self.count, self.copies | {self.number})
            stream.join(self.number)
            self.streams[self.point] = stream
        for turn, sample in enumerate(stream.samples(self.number, samples)):
            # Any copy may have read the stream and drawn random numbers for it: what follows begins from the same.
            seed_globals(key(here.seed, "tap", self.number, turn))
            yield sample
