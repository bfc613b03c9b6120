"""Numbered: ops that write `index()` alone; read in order they give one output after the other by its number."""

from collections.abc import Iterator
from typing import TypeVar

from headrace.errors import BadPipe
from headrace.op import Here, InputCursor, Op, is_count

In = TypeVar("In")
Out = TypeVar("Out")


class NumberedOp(Op[In, Out]):
    """Write `index`."""

    __slots__ = ()
    quiet = True
    accepts = is_count

    def flow(self, samples: InputCursor[In], here: Here) -> Iterator[Out]:
        inner = samples.gathered() if self.gathers else samples.indexed()
        found = None if inner is None else self.index((inner,), here)
        if found is None:
            raise BadPipe(f"{self.name()}() needs documents that can be had by number, of known lengths")
        # What is left out counts as well: then a note says how many outputs were asked for.
        notes = here.lenient or here.note is not None
        for number in range(here.emitted if here.note is None else here.note, found.length):
            if notes:
                here.rest(number + 1)
            try:
                made = found.get(number)
            except Exception as error:
                if not here.lenient:
                    raise
                here.spot.skip(here.spot.here or here, number, error)
                continue
            yield made
