"""Map: a function of the user's, on each sample."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.errors import BadOption
from headrace.op import Each

In = TypeVar("In")
Out = TypeVar("Out")


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
    """Refuse a function that cannot be called with one sample, as far as it says so."""
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
