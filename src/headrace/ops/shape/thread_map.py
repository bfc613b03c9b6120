"""Thread map: a function over the samples of one batch, in threads, in order."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from typing import Any

from headrace.op import Each, Spot, place
from headrace.tables.ops.columns import check_arity, check_columns, pick, put


@dataclass(frozen=True, slots=True)
class ThreadMap(Each[list[Any], list[Any]]):
    """The results of `fn` for every sample of a batch; at most `max_workers` of them run at the same time."""

    fn: Callable[..., Any]
    input_col: Any = None
    output_col: Any = None
    max_workers: int | None = None
    options: tuple[tuple[str, Any], ...] = ()
    """More arguments for the ThreadPoolExecutor."""
    user = True
    verb = "threadpool_map"

    def __post_init__(self) -> None:
        check_columns(self.input_col, self.output_col)
        check_arity(self.fn, self.input_col)
        if isinstance(self.output_col, list | tuple):
            object.__setattr__(self, "output_col", self.output_col[0])

    def apply(self, sample: list[Any]) -> list[Any]:
        here, first = place.spot.here, place.spot.position * len(sample)

        def one(number: int) -> Any:
            if here is not None:
                # rng() in this thread belongs to this very sample
                mine = copy(here)
                mine.spot = Spot()
                place.at(mine, first + number)
            item = sample[number]
            if self.input_col is None:
                return self.fn(item)
            return put(item, self.input_col, self.output_col, self.fn(*pick(item, self.input_col)))

        with ThreadPoolExecutor(self.max_workers, **dict(self.options)) as pool:
            return list(pool.map(one, range(len(sample))))
