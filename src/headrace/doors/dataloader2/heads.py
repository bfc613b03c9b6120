"""Heads: a stream that stands before a shard point, read once in each process for all copies of the graph there.

    stream ──> shard point ──> copy 0, 4, 8, ...        in worker 0 of 4
    stream ──> shard point ──> copy 1, 5, 9, ...        in worker 1 of 4

Each copy takes every `count`-th sample. The copy that needs a sample first reads the stream up to it, and keeps for the
others of its process what is theirs; what belongs to copies elsewhere is dropped. A copy that is left far behind, or
that starts again after its worker died, reads the stream by itself.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from headrace.op import Here, InputCursor, Op
from headrace.plan.seed import key, seed_globals

FAR = 4096
"""Samples that are kept for a copy that does not ask for them."""


class Head:
    """One pass over the stream, shared by copies."""

    def __init__(self, pass_: tuple[int, int], samples: Iterator[Any], count: int, here: frozenset[int]) -> None:
        self.pass_ = pass_
        self._samples = samples
        self._count = count
        self._read = 0
        self._kept: dict[int, deque[Any]] = {number: deque() for number in here}
        self._begun: set[int] = set()
        self._error: Exception | None = None

    def join(self, number: int) -> bool:
        """Let a copy read from the start; False if that is too late."""
        if number in self._begun or number not in self._kept:
            return False
        self._begun.add(number)
        return True

    def samples(self, number: int, alone: Iterator[Any]) -> Iterator[Any]:
        """What a copy gets; `alone` is the stream for itself, in case that it is left behind."""
        taken = 0
        while number in self._kept:
            if self._kept[number]:
                yield self._kept[number].popleft()
                taken += 1
            elif not self._read_on():
                return
        yield from islice(alone, number + taken * self._count, None, self._count)

    def _read_on(self) -> bool:
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
            if len(kept) > FAR:
                del self._kept[number]
        return True


class Heads:
    """Of each shard point the head that is read now; and the op behind each place."""

    def __init__(self) -> None:
        self._heads: dict[int, Head] = {}
        self.ops: dict[int, str] = {}

    def joined(self, tap: "Tap", pass_: tuple[int, int], stream: Any) -> Head:
        head = self._heads.get(tap.mark)
        if head is None or head.pass_ != pass_ or not head.join(tap.number):
            # (Opened once more: the copy's own cursor stays at its start, in case that it has to read alone.)
            shared = stream.reopened(turn=stream.turn)
            head = self._heads[tap.mark] = Head(pass_, shared, tap.count, tap.here | {tap.number})
            head.join(tap.number)
        return head


@dataclass(frozen=True, slots=True, eq=False)
class Tap(Op[Any, Any]):
    """A shard point behind a stream, as one copy of the graph has it."""

    count: int
    number: int
    mark: int
    """Which shard point of the graph this is."""
    here: frozenset[int]
    """The copies that run in this process."""
    heads: Heads = field(repr=False)

    def flow(self, samples: InputCursor[Any], here: Here) -> Iterator[Any]:
        head = self.heads.joined(self, (here.epoch, here.seed), samples)
        for turn, sample in enumerate(head.samples(self.number, samples)):
            # Whoever has read the stream, and drawn random numbers for it: what follows begins from the same.
            seed_globals(key(here.seed, "tap", self.number, turn))
            yield sample
