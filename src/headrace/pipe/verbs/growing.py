"""How a verb makes the next pipe. The verbs are part of Pipe, so the class itself is looked up when they are used."""

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from headrace.op import Op
    from headrace.pipe.graph import Pipe

Out = TypeVar("Out")


def grow(pipe: Any, op: "Op[Any, Out]", *others: "Pipe[Any]") -> "Pipe[Out]":
    """The pipe with one more op."""
    from headrace.pipe.graph import Pipe

    return Pipe(op, pipe, *others)


def start(op: "Op[Any, Out]") -> "Pipe[Out]":
    """A pipe of a source alone."""
    from headrace.pipe.graph import Pipe

    return Pipe(op)
