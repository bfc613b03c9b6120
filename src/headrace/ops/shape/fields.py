"""Fields of a sample: some left out, some kept, nested ones spread out; and rows as columns."""

import builtins
import warnings
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.op import Each
from headrace.tracebacks import users_line


@dataclass(frozen=True, slots=True)
class Drop(Each[Any, Any]):
    """Leave out the fields `indices`: positions of a tuple or list, keys of a dict."""

    indices: Any

    def apply(self, sample: object) -> Any:
        out = _several(self.indices)
        if isinstance(sample, Mapping):
            return _checked({k: v for k, v in sample.items() if k not in out}, sample, out)
        if isinstance(sample, list | tuple):
            return _checked(_like(sample, [v for i, v in enumerate(sample) if i not in out]), sample, out)
        return _untouched(sample)


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
                stacklevel=users_line(),
            )

    def apply(self, sample: object) -> Any:
        if isinstance(sample, Mapping):
            if not isinstance(self.first, list) and self.first not in sample:
                warnings.warn(
                    "Dictionaries are not sliced by steps, only direct index. "
                    "Please be aware that no filter was done or new item created.",
                    stacklevel=2,
                )
                return sample
            if self.stop or self.step:
                warnings.warn(
                    "Dictionaries are not sliced by steps, only direct index. "
                    "Please be aware that stop and step are not used.",
                    stacklevel=2,
                )
            keys = self.first if isinstance(self.first, list) else [self.first]
            return _checked({k: v for k, v in sample.items() if k in keys}, sample, keys)
        if not isinstance(sample, list | tuple):
            return _untouched(sample)
        if not isinstance(self.first, list):
            return sample[builtins.slice(self.first, self.stop, self.step)]
        present = sorted(i for i in self.first if _has(sample, i))
        return _checked(_like(sample, [sample[i] for i in present]), sample, self.first)


@dataclass(frozen=True, slots=True)
class Flatten(Each[Any, Any]):
    """Put the elements of nested fields in the place of the fields; `indices` says which, None means all."""

    indices: Any = None

    def apply(self, sample: object) -> Any:
        chosen = () if self.indices is None else _several(self.indices)
        if isinstance(sample, Mapping):
            return _checked(self._mapping(sample, chosen), sample, chosen)
        if isinstance(sample, list | tuple):
            return _checked(self._sequence(sample, chosen), sample, chosen)
        return _untouched(sample)

    def _sequence(self, sample: list[Any] | tuple[Any, ...], chosen: Collection[Any]) -> Any:
        flat: list[Any] = []
        for i, field in enumerate(sample):
            if isinstance(field, list | tuple) and (self.indices is None or i in chosen):
                flat.extend(field)
            else:
                flat.append(field)
        return _like(sample, flat)

    def _mapping(self, sample: Mapping[Any, Any], chosen: Collection[Any]) -> dict[Any, Any]:
        flat: dict[Any, Any] = {}
        for key, field in sample.items():
            nested = isinstance(field, Mapping) and (self.indices is None or key in chosen)
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


def _several(indices: object) -> tuple[Any, ...]:
    """One index or key, or several, as a tuple."""
    return tuple(indices) if isinstance(indices, list | tuple | set) else (indices,)


def _like(sample: list[Any] | tuple[Any, ...], fields: list[Any]) -> Any:
    """Other fields in a list or tuple like the sample; a tuple with names loses them, as they name other fields."""
    return tuple(fields) if hasattr(sample, "_fields") else type(sample)(fields)


def _has(sample: Collection[Any], index: object) -> bool:
    return index in sample if isinstance(sample, Mapping) else isinstance(index, int) and 0 <= index < len(sample)


def _checked(made: object, sample: Collection[Any], indices: Collection[Any]) -> Any:
    """What was made of a sample; with a warning, if it lacks one of the fields."""
    if not all(_has(sample, index) for index in indices):
        warnings.warn(
            "At least one index in the filter is not present in the item being returned, "
            "please be aware that expected columns/keys may be missing.",
            stacklevel=3,
        )
    return made


def _untouched(sample: object) -> Any:
    warnings.warn(
        "The next item was not an iterable and cannot be filtered, please be aware that no filter was done.",
        stacklevel=3,
    )
    return sample


@dataclass(frozen=True, slots=True)
class Rows2Columnar(Each[Any, dict[Any, list[Any]]]):
    """One list per column; `column_names` chooses keys of dict rows, or names the fields of list rows."""

    column_names: tuple[Any, ...] = ()
    verb = "rows2columnar"

    def apply(self, sample: Iterable[Any]) -> dict[Any, list[Any]]:
        columns: dict[Any, list[Any]] = defaultdict(list)
        for row in sample:
            if isinstance(row, Mapping):
                names = self.column_names or tuple(row)
                for name in names:
                    columns[name].append(row[name])
            else:
                for i, value in enumerate(row):
                    columns[self.column_names[i] if i < len(self.column_names) else i].append(value)
        return columns
