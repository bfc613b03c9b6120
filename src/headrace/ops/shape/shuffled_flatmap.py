"""Shuffled flatmap: several samples spread at the same time, each next element from a random one."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from headrace.op import Here, Op, place
from headrace.ops.counts import BadCount, positive
from headrace.plan.seed import generator, key
from headrace.tables.ops.columns import check_arity, spread_columns


@dataclass(frozen=True, slots=True)
class ShuffledFlatmap(Op[Any, Any]):
    """Like flatmap, with up to `buffer_size` samples open; when one is used up, the next input takes its place."""

    fn: Callable[..., Iterable[Any]] | None = None
    input_col: Any = None
    buffer_size: int = 100
    user = True

    def __post_init__(self) -> None:
        positive(self.buffer_size, "buffer_size should be larger than 0", BadCount)
        if self.fn is not None:
            check_arity(self.fn, self.input_col)

    def flow(self, samples: Iterator[Any], here: Here) -> Iterator[Any]:
        draw = generator(key(here.seed, "flatmap"))
        opened = enumerate(samples)

        def begin(entry: tuple[int, Any]) -> Iterator[Any]:
            place.at(here, entry[0])
            return iter(spread_columns(self.fn, self.input_col, entry[1]))

        live = [begin(entry) for entry in islice(opened, self.buffer_size)]
        while live:
            at = int(draw.integers(len(live)))
            try:
                element = next(live[at])
            except StopIteration:
                live[at] = live[-1]
                live.pop()
                live.extend(begin(entry) for entry in islice(opened, 1))
                continue
            yield element
