"""Map, filter, flatmap: functions of the user's, called with each sample or with a list of them."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.errors import BadOption
from headrace.op import Each, Flat

In = TypeVar("In")
Out = TypeVar("Out")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Map(Each[In, Out]):
    """Apply `fn` to every sample."""

    fn: Callable[[In], Out]
    user = True

    def __post_init__(self) -> None:
        _check_takes_one(self.fn)

    def apply(self, sample: In) -> Out:
        return self.fn(sample)


RANDOM = ("rng", "generator", "random", "random_state", "key", "seed")


def _check_takes_one(fn: Callable[..., Any]) -> None:
    """Refuse a function that cannot be called with one sample, if its signature shows it."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # builtins such as `int` do not tell
        return
    needed = [
        p.name for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if len(needed) > 1:
        hint = (
            "for random values call headrace.rng() inside it" if needed[1] in RANDOM
            else "give it the others with functools.partial, or fields of the sample with input_col=[...]"
        )  # fmt: skip
        name = getattr(fn, "__name__", type(fn).__name__)
        raise BadOption(f"map() calls {name} with one sample, and it needs {', '.join(needed)}; {hint}")


@dataclass(frozen=True, slots=True)
class Filter(Flat[T, T]):
    """Keep the samples for which `fn` is true."""

    fn: Callable[[T], bool]
    user = True
    chooses = True

    def spread(self, sample: T) -> Iterator[T]:
        if self.fn(sample):
            yield sample


@dataclass(frozen=True, slots=True)
class Flatmap(Flat[In, Out]):
    """Emit every element of `fn(sample)`."""

    fn: Callable[[In], Iterable[Out]]
    user = True

    def spread(self, sample: In) -> Iterator[Out]:
        yield from self.fn(sample)


@dataclass(frozen=True, slots=True)
class MapBatches(Flat[list[Any], Any]):
    """Emit every element of `fn(batch)`; with `input_col`, of `fn(list of that column)`."""

    fn: Callable[[list[Any]], Iterable[Any]]
    input_col: Any = None
    user = True

    def spread(self, sample: list[Any]) -> Iterator[Any]:
        column = self.input_col
        if column is None:
            chosen: list[Any] = sample
        elif isinstance(column, list | tuple):
            chosen = [[row[c] for c in column] for row in sample]
        else:
            chosen = [row[column] for row in sample]
        yield from self.fn(chosen)
