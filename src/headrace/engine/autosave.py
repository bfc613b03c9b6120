"""Autosave: a file to which a loader writes its state by itself, and from which a new loader goes on.

It is for one process. Ranks need not meet at every step, so what one of them writes by itself says nothing about the
others; what all of them have finished is known where the model is saved, and there the loader's state belongs too.
"""

import os
from dataclasses import dataclass
from typing import Union

from headrace.errors import BadOption, check_whole
from headrace.plan.world import World

Given = Union[str, "os.PathLike[str]", "Autosave"]
"""What loaders take as `autosave`."""
EVERY = "write autosave=Autosave(path, every={value})"
"""To whoever gives it as an option of its own."""
SHARED = "on rank 0, and load it on all ranks"
OF_EACH = "on every rank, and give each its own back"


@dataclass(frozen=True, slots=True)
class Autosave:
    """A file to which a loader writes its state after every so many batches, and from which a new one goes on."""

    path: str | os.PathLike[str]
    every: int = 1000

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | os.PathLike):
            raise BadOption(f"autosave= takes the path of a file, or Autosave(path, every=...), not {self.path!r}")
        check_whole("every", self.every, 1)

    @classmethod
    def of(cls, given: Given) -> "Autosave":
        """What a loader was given: a path, or this already."""
        return given if isinstance(given, Autosave) else cls(given)


def check_alone(world: World, saved: str = SHARED) -> None:
    """Raise unless this is the only rank; `saved` says whose states of such a loader are saved and loaded."""
    if world.ranks > 1:
        raise BadOption(
            f"autosave= is for one process, and this is one of {world.ranks} ranks: after a step that all have "
            f"finished save {{'model': model.state_dict(), 'loader': loader.state_dict()}} {saved} after a restart: "
            "loader.load_state_dict(checkpoint['loader'])"
        )
