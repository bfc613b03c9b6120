"""Sources that are already in memory: a sequence (any position at once) or an iterable (a stream)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from headrace.errors import BadPipe
from headrace.op import Source, place

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class FromSequence(Source[T]):
    """Anything with a length and positions: a list, an array, a map-style dataset."""

    data: Sequence[T]
    user = True

    def size(self) -> int:
        return len(self.data)

    def get(self, position: int) -> T:
        return self.data[position]

    @classmethod
    def name(cls) -> str:
        return "sequence"


@dataclass(frozen=True, slots=True, eq=False)
class FromIterable(Source[T]):
    """Anything that can be iterated; each epoch calls `iter()` on it again.

    A function without arguments is called for a fresh iterable each epoch. An object with `state_dict` and
    `load_state_dict` resumes by them; any other is read again up to the position.
    """

    data: Iterable[T] | Callable[[], Iterable[T]]
    user = True

    def flow(self, *inputs: Any) -> Iterator[T]:
        (here,) = inputs
        samples = iter(self.data() if callable(self.data) and not hasattr(self.data, "__iter__") else self.data)
        position = -1
        for position, sample in enumerate(islice(samples, here.strand, None, here.strands)):
            place.at(here, position)
            yield sample
        if position < 0 and here.epoch != 0 and samples is self.data:
            raise BadPipe(
                f"the source is an iterator ({type(self.data).__name__}) that an earlier epoch has used up; give "
                f"Pipe.of() something that can be iterated again, or a function that makes a new iterator"
            )

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        try:
            return len(self.data)  # type: ignore[arg-type]
        except TypeError:
            return None

    @classmethod
    def name(cls) -> str:
        return "iterable"
