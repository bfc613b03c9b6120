"""Load from tfrecord: the examples in TFRecord files, check sums verified, as numpy arrays and lists of bytes."""

import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.errors import name_file
from headrace.ops.files.per_file import PerFile, path_and_binary_stream
from headrace.sources.crc32c import crc32c
from headrace.sources.limit import limit_of
from headrace.sources.tfrecord import features, records

Spec = Mapping[str, tuple[tuple[int, ...] | None, Any] | None]


@dataclass(frozen=True, slots=True, eq=False)
class LoadFromTfrecord(PerFile[dict[str, Any]]):
    """Each example as a dict. `spec`, `{name: (shape, dtype)}`, picks features and gives them their shape and type.

    A dtype is whatever `numpy.dtype` takes, or one of torch's; None leaves shape, type or both as they are.
    """

    spec: Spec | None = None
    known: int = -1

    def __post_init__(self) -> None:
        crc32c()  # (what is missing is said when the pipe is made)
        for form in (self.spec or {}).values():
            if form is not None and form[0] is not None and list(form[0]).count(-1) > 1:
                raise RuntimeError("Shape can contain at most one dynamic dimension (-1).")

    def spread(self, sample: object) -> Iterator[dict[str, Any]]:
        path, stream = path_and_binary_stream(sample)
        try:
            for record in records(stream, path):
                yield self._selected(features(record, limit_of(stream), path))
        except RuntimeError as error:
            warnings.warn(f"Unable to read from corrupted tfrecord stream {path} due to: {error}, abort!", stacklevel=2)
            name_file(error, path)
            raise
        finally:
            stream.close()

    def _selected(self, example: dict[str, Any]) -> dict[str, Any]:
        if self.spec is None:
            return example
        lacking = [name for name in self.spec if name not in example]
        if lacking:
            raise RuntimeError(f"Example is missing some required keys: {', '.join(sorted(lacking))}")
        return {name: _shaped(example[name], *(form or (None, None))) for name, form in self.spec.items()}


def _shaped(value: Any, shape: tuple[int, ...] | None, dtype: Any) -> Any:
    """A feature in its shape and type. A sequence of features becomes one array, and the shape is that of the array."""
    if isinstance(value, list) and value and hasattr(value[0], "reshape"):
        if shape is None and dtype is None:
            return value
        value = _stacked(value)
    if isinstance(value, list):
        flat = [part for step in value for part in (step if isinstance(step, list) else [step])]
        return value if shape is None else _nested(flat, _full_shape(shape, len(flat)))
    if value is None:
        return None
    if shape is not None:
        value = value.reshape(_full_shape(shape, value.size))
    return value if dtype is None else value.astype(_numpy_name(dtype))


def _stacked(features: list[Any]) -> Any:
    import numpy as np

    if len({feature.shape for feature in features}) > 1:
        raise RuntimeError("The features of a sequence have different lengths: leave shape and dtype out of its spec")
    return np.stack(features)


def _full_shape(shape: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The shape with -1 replaced by the size that fits `count` values."""
    rest = math.prod(n for n in shape if n != -1)
    full = tuple(count // rest if n == -1 and rest else n for n in shape)
    if math.prod(full) != count or -1 in full:
        raise RuntimeError(f"Cannot reshape {count} values into shape {tuple(shape)}")
    return full


def _nested(values: list[bytes], shape: tuple[int, ...]) -> Any:
    if not shape:
        return values[0]
    for size in reversed(shape[1:]):
        values = [values[i : i + size] for i in range(0, len(values), size)]  # type: ignore[misc]
    return values


def _numpy_name(dtype: object) -> Any:
    return str(dtype).removeprefix("torch.") if type(dtype).__module__ == "torch" else dtype
