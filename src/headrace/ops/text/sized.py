"""Sized: documents whose lengths somebody knows, from a column of a table or an earlier run.

Batches, steps and rows are planned from these lengths: if they are wrong, so are all of them, and nobody would see it.
So each document that can be counted is, when it is read. (Text, images and the like have no tokens to count yet.)
"""

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
        fetch = found.get

        def get(position: int) -> T:
            sample: T = fetch(position)
            tokens = _tokens_in(sample)
            if tokens is not None and tokens != lengths[position]:
                raise BadOption(
                    f"document {position} has {tokens} tokens where {lengths[position]} were said: sized() needs their "
                    "lengths"
                )
            return sample

        found.get = get
        tokens = int(self._ends[-1]) if len(lengths) else 0
        found.lengths = Lengths(lambda some: lengths[some], tokens, self.identity(), ends=self._ends)
        return found

    def describe(self) -> str:
        return f"sized({len(self.lengths)} lengths)"

    def identity(self) -> tuple[Any, ...]:
        return ("sized", self._digest)


def _tokens_in(sample: object) -> int | None:
    """How many tokens a sample has, if it is a document of tokens: a list or an array of whole numbers, or a dict that
    has one; None for anything else."""
    if isinstance(sample, np.ndarray):
        return len(sample) if sample.ndim == 1 and sample.dtype.kind in "iu" else None
    if isinstance(sample, dict):
        found = sample.get("tokens", sample.get("input_ids"))
        return None if isinstance(found, dict) else _tokens_in(found)
    if isinstance(sample, list):
        return len(sample) if not sample or isinstance(sample[0], int) else None
    return None
