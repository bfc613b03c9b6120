"""What all verbs share: what they know of the Pipe that they are part of, how they check functions and make pipes."""

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.errors import BadOption

if TYPE_CHECKING:
    from headrace.op import Indexed, Op
    from headrace.pipe.graph import Pipe

Out = TypeVar("Out")
Columns = Hashable | list[Any]
"""The index or key of one field of a sample, or several of them; None is all of the sample."""


class Verbs:
    """The base of the classes of verbs, all of which are part of Pipe: what they use of it."""

    __slots__ = ()
    if TYPE_CHECKING:
        op: Op[Any, Any]
        inputs: "tuple[Pipe[Any], ...]"

        def length(self) -> int | None: ...
        def indexed(self, seed: int, epoch: int) -> Indexed | None: ...
        def fingerprint(self) -> list[str]: ...


def length_of(pipe: Verbs) -> int | None:
    """The length of a pipe, also where an object of the user's has an attribute called `length`."""
    return type(pipe).length(pipe)


def grow(pipe: Any, op: "Op[Any, Out]", *others: "Pipe[Any]") -> "Pipe[Out]":
    """The pipe with one more op."""
    from headrace.pipe.graph import Pipe  # (which is made of the verbs)

    return Pipe(op, pipe, *others)


def start(op: "Op[Any, Out]") -> "Pipe[Out]":
    """A pipe of a source alone."""
    from headrace.pipe.graph import Pipe

    return Pipe(op)


def check_node(op: object, inputs: tuple[object, ...]) -> None:
    """Raise unless this is an op with its inputs."""
    from headrace.op import Op, Source
    from headrace.pipe.graph import Pipe

    if not isinstance(op, Op):
        if isinstance(op, type) and issubclass(op, Op):
            raise BadOption(f"{op.__name__} is a class of ops: give one of them, {op.__name__}(...)")
        instead = ".map(fn) takes a function" if callable(op) else "Pipe.of(data) makes a pipe of data"
        raise BadOption(f"a pipe is made of ops (headrace.op), not of {type(op).__name__}: {instead}")
    if inputs and isinstance(op, Source):
        raise BadOption(f"{op.name()} is a source, which has no input: begin a pipe with it, Pipe(op)")
    for given in inputs:
        if not isinstance(given, Pipe):
            raise BadOption(
                f"the inputs of {op.name()} must be pipes, not {type(given).__name__}: wrap it in Pipe.of()"
            )


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
