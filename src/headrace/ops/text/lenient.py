"""Lenient: what several documents make up goes on without the ones that fail, where the user said on_error="skip".

A row or a batch of documents of known length is planned before any of them is read. If one of them fails, the others
must not go with it: each that fails is left out by itself, counted and listed under the number of the row or batch.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from headrace.op import Here

Wanted = TypeVar("Wanted")
Got = TypeVar("Got")


def what_works(
    wanted: Sequence[Wanted], read: Callable[[Wanted], Got], here: Here, position: int, always: bool = False
) -> list[Got | None]:
    """What `read` gives for each, None for one that fails and may be left out.

    If all fail the last error is raised, so that nothing empty is made of them, unless it is to come `always`.
    """
    if not here.lenient:
        return [read(one) for one in wanted]
    spot = here.spot
    found: list[Got | None] = []
    last, empty = len(wanted) - 1, not always
    for number, one in enumerate(wanted):
        spot.index = None
        try:
            found.append(read(one))
            empty = False
        except Exception as error:
            if empty and number == last:
                raise
            spot.skip(spot.here or here, position, error)
            found.append(None)
    return found
