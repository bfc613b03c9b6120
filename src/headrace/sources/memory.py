"""Sources that are already in memory: a sequence (any position at once) or an iterable (a stream).

Samples of a list, an array or a tensor are copied for each reader where they can be changed (containers, arrays,
tensors), so that an op that changes a sample in place changes neither the data nor what later epochs and other readers
get. Numbers, text and read-only arrays are not copied; arrays above `COPIED` bytes come as read-only views; objects of
other classes come as they are. Nothing is copied of what a dataset or an iterable of the user's own returns;
`headrace verify` says when an op changes it.
"""

import copy
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set, ValuesView
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from operator import getitem
from typing import Any, TypeVar

from headrace.brief import brief, stable
from headrace.errors import BadPipe
from headrace.op import Here, Indexed, Source, Upcoming, place
from headrace.ops.copies import IMMUTABLE, copier, is_tensor
from headrace.sources.together import Together, reads_together

T = TypeVar("T")
COPIED = 1 << 20
"""Bytes of an array up to which a copy costs less than what else is done for a sample."""


@dataclass(frozen=True, slots=True, eq=False)
class FromSequence(Source[T]):
    """Anything with a length and positions: a list, an array, a map-style dataset."""

    data: Sequence[T]
    copies: bool = True
    """False for an executor that copies each sample before anything can change it."""
    user = True
    verb = "sequence"

    def size(self) -> int:
        return len(self.data)

    def get(self, position: int) -> T:
        return self.getter()(position)

    def getter(self) -> Callable[[int], T]:
        plain: Any = partial(getitem, by_position(self.data))
        return self._copied if self.copies and keeps_samples(type(self.data)) else plain

    def _copied(self, position: int) -> T:
        sample = self.data[position]
        return sample if type(sample) in IMMUTABLE else copy_for_reader(sample)

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        found = Source.index(self, inputs, here)
        many = None if keeps_samples(type(self.data)) else reads_together(self.data)
        if found is not None and many is not None:
            together = Together(many, found.get, here)
            found.get, found.ahead = together.get, Upcoming(together.ahead)
        return found

    def as_kept(self) -> Source[T]:
        return FromSequence(self.data, copies=False)

    def describe(self) -> str:
        return f"of({brief(self.data)})"

    def identity(self) -> tuple[Any, ...]:
        return (self.name(), ("data", stable(self.data)))


@dataclass(frozen=True, slots=True, eq=False)
class FromIterable(Source[T]):
    """Anything that can be iterated; each epoch calls `iter()` on it again.

    A function without arguments is called each epoch and returns the iterable. To resume, it is read again up to the
    position.
    """

    data: Iterable[T] | Callable[[], Iterable[T]]
    user = True
    verb = "iterable"
    divides = True

    def flow(self, here: Here) -> Iterator[T]:
        data = self.data() if callable(self.data) and not hasattr(self.data, "__iter__") else self.data
        samples = iter(data)
        kind: Any = type(data)
        kept = keeps_samples(kind)
        position = -1
        for position, sample in enumerate(islice(samples, here.strand, None, here.strands)):
            place.at(here, position)
            yield copy_for_reader(sample) if kept else sample
        if position < 0 and here.epoch != 0 and samples is self.data:
            raise BadPipe(
                f"the source is an iterator ({type(self.data).__name__}) that an earlier epoch has used up; give "
                f"Pipe.of() something that can be iterated again, or a function that makes a new iterator"
            )

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return known_length(self.data)

    def describe(self) -> str:
        return f"of({brief(self.data)})"


def by_position(data: Any) -> Any:
    """What `[i]` gives the sample at position i of: a pandas Series would look for the label i."""
    return data.iloc if hasattr(type(data), "iloc") else data


def known_length(data: Any) -> int | None:
    """How many samples there are, where the data says so."""
    try:
        return len(data)
    except TypeError:
        return None


@lru_cache(maxsize=256)
def keeps_samples(kind: type) -> bool:
    """Whether data of this class keeps its samples, so that a reader who changes one changes it for the next reader.

    (Asked for every sample, and answered for every class once.)
    """
    if issubclass(kind, list | tuple | deque | Set | ValuesView) or is_tensor(kind):
        return True
    np = sys.modules.get("numpy")
    if np is not None and issubclass(kind, np.ndarray):
        return True
    return any(base.__name__ == "TensorDataset" for base in kind.__mro__)


def _array(array: Any) -> Any:
    if array.dtype.hasobject:
        return copy.deepcopy(array)
    if not array.flags.writeable:
        return array
    if array.nbytes <= COPIED:
        return array.copy()
    view = array.view()
    view.flags.writeable = False
    return view


copy_for_reader = copier(_array, lambda tensor: tensor.clone())
"""A copy of a sample that its reader may change."""
