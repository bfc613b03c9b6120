"""Alike: a field has one form in all samples of a batch, or an error names the field and the sample where it differs.

Kept as a list, unlike samples would fail far from here, in the model, or train it on nothing. None is the form of no
field: it is what a function without a `return` gives.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

_NO_ROWS = (str, bytes, Mapping, Set)


def check(samples: Sequence[Any], fits: Callable[[Any], bool], path: str) -> None:
    """Raise unless all samples are what the first one is."""
    for number, sample in enumerate(samples):
        if not fits(sample):
            raise unlike(samples, number, path)


def check_rows(samples: Sequence[Any], path: str) -> None:
    """Raise unless all samples are rows: they have fields by their number."""
    check(samples, lambda sample: hasattr(sample, "__len__") and not isinstance(sample, _NO_ROWS), path)


def check_objects(samples: Sequence[Any], path: str) -> None:
    """Raise unless all samples have a class in common with the first one, and none is None."""
    kind = type(samples[0])
    classes = {kind, *kind.__mro__[:-1]}
    check(samples, lambda sample: sample is not None and not classes.isdisjoint(type(sample).__mro__), path)


def unlike(samples: Sequence[Any], number: int, path: str) -> TypeError:
    """The error about this sample, which is not what the first one is."""
    first, other = samples[0], samples[number]
    if other is not None:
        said = f"sample 0 of the batch has type {type(first).__name__}, sample {number} type {type(other).__name__}"
    elif path:
        said = f"sample {number} of the batch is None"
    else:
        said = f"sample {number} of the batch is None (does the function of a map() lack its return?)"
    return TypeError(
        f"cannot collate{where(path)}: {said}; make samples alike in a .map() before, leave some out with "
        ".filter(...), or give .collate(fn) a function of your own"
    )


def where(path: str) -> str:
    """A field, as errors name it."""
    return f" field {path}" if path else ""
