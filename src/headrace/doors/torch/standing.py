"""Standing: what a loader remembers of its last iterator, so that a snapshot can be taken after it is gone."""

import weakref
from typing import Any, Protocol

from headrace.doors.torch.state import snapshot


class Live(Protocol):
    """An iterator that still stands somewhere."""

    def _at(self) -> Any: ...


class Standing:
    """Where an iterator stands, or stood when it went away."""

    def __init__(self, style: str, workers: int, start: dict[str, Any], drawn: list[int]) -> None:
        self.style = style
        self.workers = workers
        self.start = start
        self.drawn = drawn
        """Whether the base seed was drawn at the start of this epoch, and how often the sampler was iterated."""
        self.base_seed = 0
        self.epoch = 0
        self.ended = False
        self.kept: dict[str, Any] = {}
        """What datasets that have a state stand at when the epoch is over."""
        self.live: weakref.ref[Live] | None = None
        self.at: Any = None

    def batches(self) -> int:
        """How many batches of this epoch were delivered."""
        at = self._at()
        return int(at["batches"] if self.style == "map" else at[0])

    def _at(self) -> Any:
        live = self.live() if self.live is not None else None
        return self.at if live is None else live._at()

    def state(self) -> dict[str, Any]:
        at = self._at()
        if self.style == "map":
            at = {**at, "drawn": self.drawn}
        else:
            batches, place = at
            at = {"place": place.plain(), "batches": batches, "drawn": self.drawn}
        return snapshot(self.style, self.workers, self.base_seed, self.epoch, self.start, at)
