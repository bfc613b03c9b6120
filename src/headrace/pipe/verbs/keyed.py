"""Keyed: a pipe whose samples can be asked for one by one, `pipe[key]`."""

from typing import Any, TypeVar

from headrace.pipe.graph import Pipe
from headrace.sources.access import RandomAccess

T = TypeVar("T", covariant=True)


class Keyed(Pipe[T]):
    """A pipe with random access, and `[]`."""

    __slots__ = ("_access",)

    def __getitem__(self, key: object) -> T:
        if not hasattr(self, "_access"):
            object.__setattr__(self, "_access", RandomAccess(Pipe(self.op, *self.inputs)))
        return self._access.get(key)  # type: ignore[attr-defined, no-any-return]

    def __reduce__(self) -> tuple[Any, ...]:
        return (Keyed, (self.op, *self.inputs))
