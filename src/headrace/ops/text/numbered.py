"""Numbered: ops whose outputs can be had by their number, because the lengths of all documents are known.

How many rows or batches a window of documents becomes is counted before any document is read (`WindowPlans`). When a
document then fails, only that document is left out of its row or batch, if the user said `on_error="skip"`: it is
counted and listed under the number of the row or batch (`context.read_each`).
"""

from collections.abc import Callable, Iterator, Sized
from functools import lru_cache
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from headrace.errors import BadOption, BadPipe
from headrace.op import Here, Indexed, InputCursor, Op, is_count
from headrace.plan.seed import key

In = TypeVar("In")
Out = TypeVar("Out")
Plan = TypeVar("Plan", bound=Sized)
MANY = 1 << 26
"""With more documents than this (a mixture without an end, for one) windows are not counted in advance."""
PLANS = 8
"""Windows that are kept planned."""
TABLES = 4
"""Orders of which the number of outputs of each window is kept."""


class NumberedOp(Op[In, Out]):
    """Write `index`. Read as a stream, it gives the outputs in the order of their numbers."""

    __slots__ = ()
    quiet = True
    accepts = is_count

    def flow(self, samples: InputCursor[In], here: Here) -> Iterator[Out]:
        inner = samples.gathered() if self.gathers else samples.indexed()
        found = None if inner is None else self.index((inner,), here)
        if found is None:
            raise BadPipe(f"{self.name()}() needs documents that can be had by number, of known lengths")
        # Outputs that are left out count as well: then the note says how many outputs were asked for.
        notes = here.lenient or here.note is not None
        for number in range(here.emitted if here.note is None else here.note, found.length):
            if notes:
                here.rest(number + 1)
            try:
                made = found.get(number)
            except Exception as error:
                if not here.lenient:
                    raise
                here.spot.skip(here.spot.here or here, number, error)
                continue
            yield made


def wrong_length(number: int, tokens: int, said: int) -> BadOption:
    """The error for a document that has another length than was said of it."""
    return BadOption(f"document {number} has {tokens} tokens where {said} were said: sized() needs their lengths")


class WindowPlans(Generic[Plan]):
    """The plan of each window of `size` documents of an order, and how many outputs there are up to each.

    A plan is sized: its length is the number of outputs (rows, batches) that the window becomes.
    """

    def __init__(
        self,
        documents: Indexed,
        size: int,
        seed: int,
        make: Callable[[list[int], int, bool], Plan],
        made_by: tuple[object, ...],
    ) -> None:
        """`make(lengths, seed, last)` plans a window; `made_by` is all that it depends on besides these."""
        assert documents.lengths is not None
        self._known, self._documents, self._size, self._seed = documents.lengths, documents.length, size, seed
        self._make = make
        self.windows = -(-documents.length // size)
        self.window = lru_cache(maxsize=PLANS)(self._window)
        self.lengths = lru_cache(maxsize=PLANS)(self._lengths)
        # (How many outputs a window has does not depend on the seed that mixes them.)
        about = (*made_by, self._known.key, size, documents.length)
        ends = _ends.get(about)
        if ends is None:
            counts = [len(self.window(number)) for number in range(self.windows)]
            ends = _ends[about] = np.cumsum(counts, dtype=np.int64)
            for old in list(_ends)[:-TABLES]:
                _ends.pop(old, None)
        self._ends = ends

    @property
    def outputs(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def find(self, output: int) -> tuple[int, int, Plan]:
        """The window that an output is in, its number there, and the plan of the window."""
        window = self.window_of(output)
        return window, output - (int(self._ends[window - 1]) if window else 0), self.window(window)

    def window_of(self, output: int) -> int:
        return int(np.searchsorted(self._ends, output, side="right"))

    def _lengths(self, number: int) -> list[int]:
        positions = np.arange(number * self._size, min((number + 1) * self._size, self._documents))
        lengths: list[int] = self._known.at(positions).tolist()
        return lengths

    def _window(self, number: int) -> Plan:
        return self._make(self.lengths(number), key(self._seed, "window", number), number == self.windows - 1)


_ends: dict[tuple[object, ...], NDArray[np.int64]] = {}
"""The first output behind each window, for the last few orders: counting them is what costs."""
