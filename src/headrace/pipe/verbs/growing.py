"""How a verb checks what it is given, and makes the next pipe.

The verbs are part of Pipe, so the class itself is looked up when they are used.
"""

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.errors import BadOption

if TYPE_CHECKING:
    from headrace.op import Op
    from headrace.pipe.graph import Pipe

Out = TypeVar("Out")
Columns = Hashable | list[Any]
"""The index or key of one field of a sample, or several of them; None is all of the sample."""


def grow(pipe: Any, op: "Op[Any, Out]", *others: "Pipe[Any]") -> "Pipe[Out]":
    """The pipe with one more op."""
    from headrace.pipe.graph import Pipe

    return Pipe(op, pipe, *others)


def start(op: "Op[Any, Out]") -> "Pipe[Out]":
    """A pipe of a source alone."""
    from headrace.pipe.graph import Pipe

    return Pipe(op)


class NotCallable(BadOption, TypeError):
    """Something else stands where a function is needed."""


def function(fn: object) -> Any:
    """The function, if it is one."""
    if not callable(fn):
        raise NotCallable(f"A callable function is expected, but {type(fn)} is provided.")
    return fn


def keywords(given: Mapping[str, Any] | None) -> tuple[tuple[str, Any], ...]:
    """Arguments for another library, as a value that does not change."""
    return tuple(sorted((given or {}).items()))
