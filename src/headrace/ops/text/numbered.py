"""Numbered: ops that write `index()` alone; read in order they give one output after the other by its number."""

from collections.abc import Iterator
from typing import TypeVar

from headrace.errors import BadPipe
from headrace.op import Here, InputCursor, Op

In = TypeVar("In")
Out = TypeVar("Out")


class NumberedOp(Op[In, Out]):
    """Write `index`."""

    __slots__ = ()
    quiet = True

    def flow(self, samples: InputCursor[In], here: Here) -> Iterator[Out]:
        inner = samples.gathered() if self.gathers else samples.indexed()
        found = None if inner is None else self.index((inner,), here)
        if found is None:
            raise BadPipe(f"{self.name()}() needs documents that can be had by number, of known lengths")
        for number in range(here.emitted, found.length):
            yield found.get(number)
