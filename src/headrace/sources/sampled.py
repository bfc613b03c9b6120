"""Sampled: the numbers that a sampler draws for a pipe of known length."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from headrace.op import Here, Source, place


@dataclass(frozen=True, slots=True, eq=False)
class Sampled(Source[int]):
    """Positions of `data` in the order of `sampler(*args, data_source=data, **kwargs)`; None: 0, 1, 2, ..."""

    data: Any
    sampler: Callable[..., Any] | None = None
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()
    user = True
    verb = "sampler"

    def flow(self, here: Here) -> Iterator[int]:
        for position, drawn in enumerate(self._made()):
            place.at(here, position)
            yield drawn

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return len(self._made())

    def _made(self) -> Any:
        if self.sampler is None:
            return range(len(self.data))
        return self.sampler(*self.args, data_source=self.data, **dict(self.kwargs))
