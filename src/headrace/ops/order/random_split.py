"""Random split: a fixed random part of the samples.

Which part a sample belongs to depends only on the seed and on its number, so it is the same in every epoch and process.
The parts of one split are disjoint, complete and of exact size. Samples after the `total`-th are split by the same
weights, `total` at a time.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

from headrace.op import Here, Indexed, Op, is_count
from headrace.ops.ahead import ahead_of
from headrace.plan.seed import key
from headrace.tables.ops.columns import close_streams

T = TypeVar("T")
CHUNK = 4096


@dataclass(frozen=True, slots=True)
class RandomSplit(Op[T, T]):
    """The samples of part `number`, when `total` samples are split into parts of the sizes `counts`."""

    counts: tuple[int, ...]
    number: int
    seed: int
    quiet = True
    accepts = is_count

    def flow(self, samples: Iterator[T], here: Here) -> Iterator[T]:
        position = here.note or 0
        parts: list[int] = []
        first = position
        for sample in samples:
            if position - first == len(parts):
                first, parts = position, self._parts(position, position + CHUNK)
            chosen = parts[position - first] == self.number
            position += 1
            if chosen:
                here.rest(position)
                yield sample
            else:
                close_streams(sample)

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        (inner,) = inputs
        chosen = self._chosen(inner.length)
        fetch = inner.get
        found = Indexed(len(chosen), lambda position: fetch(chosen[position]))
        found.ahead = ahead_of(inner, lambda positions: [chosen[position] for position in positions])
        return found

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        size = inputs[0]
        if size is None:
            return None
        return self.counts[self.number] if size == sum(self.counts) else len(self._chosen(size))

    def _chosen(self, size: int) -> list[int]:
        """The positions of this part, of `size` samples."""
        return [p for p, part in enumerate(self._parts(0, size)) if part == self.number]

    def _parts(self, start: int, stop: int) -> list[int]:
        """Which part each of the positions start..stop belongs to."""
        import numpy as np

        from headrace.plan.order import Shuffled

        total = sum(self.counts)
        ends = list(accumulate(self.counts))
        parts: list[int] = []
        while start < stop:
            block, first = divmod(start, total)
            many = min(stop - start, total - first)
            places = Shuffled(total, key(self.seed, "split", block))(np.arange(first, first + many))
            parts += [bisect_right(ends, place) for place in places.tolist()]
            start += many
        return parts


def part_sizes(weights: Sequence[float], total: int) -> tuple[int, ...]:
    """Whole numbers in proportion to the weights, with this sum: what is lost by rounding goes to the largest rests."""
    whole = float(sum(weights))
    exact = [w * total / whole for w in weights]
    counts = [int(e + 1e-9) for e in exact]
    rests = sorted(range(len(counts)), key=lambda i: counts[i] - exact[i])
    for i in rests[: total - sum(counts)]:
        counts[i] += 1
    return tuple(counts)
