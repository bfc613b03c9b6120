"""Map batches: a function that gets a list of samples and returns any number of new ones."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from headrace.op import Flat


@dataclass(frozen=True, slots=True)
class MapBatches(Flat[list[Any], Any]):
    """Emit every element of `fn(batch)`; with `input_col`, of `fn(list of that column)`."""

    fn: Callable[[list[Any]], Iterable[Any]]
    input_col: Any = None
    user = True

    def spread(self, sample: list[Any]) -> Iterator[Any]:
        column = self.input_col
        if column is None:
            chosen: list[Any] = sample
        elif isinstance(column, list | tuple):
            chosen = [[row[c] for c in column] for row in sample]
        else:
            chosen = [row[column] for row in sample]
        yield from self.fn(chosen)
