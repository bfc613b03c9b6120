"""Flatten: one level of nesting inside a sample taken away."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.op import Each
from headrace.ops.shape.drop import ABSENT, NOT_ITERABLE, wanted


@dataclass(frozen=True, slots=True)
class Flatten(Each[Any, Any]):
    """Put the elements of nested fields in the place of the fields; `indices` says which, None means all."""

    indices: Any = None

    def apply(self, sample: object) -> Any:
        chosen = None if self.indices is None else wanted(self.indices)
        if isinstance(sample, Mapping):
            flat: Any = self._mapping(sample, chosen)
            missing = chosen is not None and not all(k in sample for k in chosen)
        elif isinstance(sample, list | tuple):
            flat = self._sequence(sample, chosen)
            missing = chosen is not None and any(not isinstance(i, int) or not 0 <= i < len(sample) for i in chosen)
        else:
            warnings.warn(NOT_ITERABLE, stacklevel=2)
            return sample
        if missing:
            warnings.warn(ABSENT, stacklevel=2)
        return flat

    def _sequence(self, sample: list[Any] | tuple[Any, ...], chosen: tuple[Any, ...] | None) -> Any:
        flat: list[Any] = []
        for i, field in enumerate(sample):
            if isinstance(field, list | tuple) and (chosen is None or i in chosen):
                flat.extend(field)
            else:
                flat.append(field)
        return type(sample)(flat)

    def _mapping(self, sample: Mapping[Any, Any], chosen: tuple[Any, ...] | None) -> dict[Any, Any]:
        flat: dict[Any, Any] = {}
        for key, field in sample.items():
            nested = isinstance(field, Mapping) and (chosen is None or key in chosen)
            for name, value in field.items() if nested else [(key, field)]:
                if name in flat:
                    warnings.warn(
                        "Flattener tried to insert the same key twice into the dict item, "
                        f"the second key,value pair {name!r} has been dropped.",
                        stacklevel=3,
                    )
                else:
                    flat[name] = value
        return flat
