"""RandomAccess: single samples of a pipe that is not being iterated, by position or key.

Random choices are those of epoch 0. Each thread opens the pipe for itself, so `rng()` inside the pipe gives the same
values whichever thread, or op of another pipe, asks.
"""

import threading
from typing import Any

from headrace.errors import BadPipe
from headrace.op import Indexed, Spot, place


class RandomAccess:
    """`get(key)` and `length` of a pipe."""

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe
        self._local = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:
        return (RandomAccess, (self._pipe,))

    def get(self, key: Any) -> Any:
        indexed, spot = self._opened()
        caller, place.spot = place.spot, spot
        try:
            return indexed.get(key)
        finally:
            place.spot = caller

    @property
    def length(self) -> int:
        return self._opened()[0].length

    def _opened(self) -> tuple[Indexed, Spot]:
        local = self._local
        if not hasattr(local, "opened"):
            spot = Spot()
            indexed = self._pipe.indexed(0, 0, spot)
            if indexed is None:
                raise BadPipe(f"this pipe has no random access: {self._pipe!r}")
            local.opened = (indexed, spot)
        return local.opened  # type: ignore[no-any-return]
