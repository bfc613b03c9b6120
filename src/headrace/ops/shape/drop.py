"""Drop: some fields of a sample left out."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.op import Each

NOT_ITERABLE = "The next item was not an iterable and cannot be filtered, please be aware that no filter was done."
ABSENT = (
    "At least one index in the filter is not present in the item being returned, "
    "please be aware that expected columns/keys may be missing."
)


def wanted(indices: object) -> tuple[Any, ...]:
    """One index or key, or several, as a tuple."""
    return tuple(indices) if isinstance(indices, list | tuple | set) else (indices,)


@dataclass(frozen=True, slots=True)
class Drop(Each[Any, Any]):
    """Leave out the fields `indices`: positions of a tuple or list, keys of a dict."""

    indices: Any

    def apply(self, sample: object) -> Any:
        out = wanted(self.indices)
        if isinstance(sample, Mapping):
            kept: Any = {k: v for k, v in sample.items() if k not in out}
            missing = not all(k in sample for k in out)
        elif isinstance(sample, list | tuple):
            kept = type(sample)([v for i, v in enumerate(sample) if i not in out])
            missing = any(not isinstance(i, int) or not 0 <= i < len(sample) for i in out)
        else:
            warnings.warn(NOT_ITERABLE, stacklevel=2)
            return sample
        if missing:
            warnings.warn(ABSENT, stacklevel=2)
        return kept
