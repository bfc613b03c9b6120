"""Sized: documents whose lengths somebody knows, from a column of a table or an earlier run."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from headrace.errors import BadOption
from headrace.op import Each, Here, Indexed, Lengths

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Sized(Each[T, T]):
    """The same samples; `lengths` says how many tokens each has."""

    lengths: Sequence[int] | NDArray[Any]
    # Worked out once: every snapshot asks for the digest.
    _ends: NDArray[np.int64] = field(init=False, repr=False)
    _digest: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        lengths = np.asarray(self.lengths, np.int64)
        if lengths.ndim != 1 or (len(lengths) and int(lengths.min()) < 0):
            raise BadOption("sized(lengths) takes one whole number >= 0 for each document")
        object.__setattr__(self, "lengths", lengths)
        object.__setattr__(self, "_ends", np.cumsum(lengths))
        object.__setattr__(self, "_digest", blake2b(lengths.tobytes(), digest_size=8).hexdigest())

    def apply(self, sample: T) -> T:
        return sample

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        found = Each.index(self, inputs, here)
        assert found is not None
        lengths = np.asarray(self.lengths)
        if len(lengths) != found.length:
            raise BadOption(f"sized() got {len(lengths)} lengths for {found.length} documents")
        tokens = int(self._ends[-1]) if len(lengths) else 0
        found.lengths = Lengths(lambda some: lengths[some], tokens, self.identity(), ends=self._ends)
        return found

    def describe(self) -> str:
        return f"sized({len(self.lengths)} lengths)"

    def identity(self) -> tuple[Any, ...]:
        return ("sized", self._digest)
