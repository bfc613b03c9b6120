"""Keyed: a pipe whose samples can be asked for one by one, `pipe[key]`."""

from typing import Any, TypeVar

from headrace.errors import BadPipe
from headrace.op import Indexed
from headrace.pipe import Pipe

T = TypeVar("T", covariant=True)


class Keyed(Pipe[T]):
    """A pipe with random access, and `[]`."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> T:
        return access(self).get(key)  # type: ignore[no-any-return]

    def __reduce__(self) -> tuple[Any, ...]:
        return (Keyed, (self.op, *self.inputs))


def access(pipe: Pipe[Any]) -> Indexed:
    """Random access to a pipe that must have it, with the random choices of epoch 0."""
    indexed = pipe.indexed(0, 0)
    if indexed is None:
        raise BadPipe(f"this pipe has no random access, so that pipe[key] cannot be answered: {pipe!r}")
    return indexed
