"""Slice: some fields of a sample kept."""

import builtins
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.op import Each
from headrace.ops.shape.drop import ABSENT, NOT_ITERABLE


@dataclass(frozen=True, slots=True)
class Slice(Each[Any, Any]):
    """Keep `sample[first:stop:step]`, or the fields that the list `first` names."""

    first: Any
    stop: int | None = None
    step: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.first, list) and (self.stop or self.step):
            warnings.warn(
                "A list of indices was passed as well as a stop or step for the slice, "
                "these arguments can't be used together so only the indices list will be used.",
                stacklevel=4,
            )

    def apply(self, sample: object) -> Any:
        if isinstance(sample, Mapping):
            return self._keys(sample)
        if not isinstance(sample, list | tuple):
            warnings.warn(NOT_ITERABLE, stacklevel=2)
            return sample
        if not isinstance(self.first, list):
            return sample[builtins.slice(self.first, self.stop, self.step)]
        present = [i for i in self.first if isinstance(i, int) and 0 <= i < len(sample)]
        if len(present) < len(self.first):
            warnings.warn(ABSENT, stacklevel=2)
        return type(sample)([sample[i] for i in sorted(present)])

    def _keys(self, sample: Mapping[Any, Any]) -> dict[Any, Any]:
        if self.stop or self.step:
            warnings.warn(
                "Dictionaries are not sliced by steps, only direct index. "
                "Please be aware that stop and step are not used.",
                stacklevel=3,
            )
        keys = self.first if isinstance(self.first, list) else [self.first]
        if any(k not in sample for k in keys):
            warnings.warn(ABSENT, stacklevel=3)
        return {k: v for k, v in sample.items() if k in keys}
