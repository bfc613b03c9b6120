"""Watch: notices in a worker whether a batch has left anything behind that a later batch of that worker would see.

torch's worker k mod num_workers makes batch k, with generators that go on from its batch before. As long as no batch
has drawn from them, it makes no difference who makes which batch, so whoever is free may take the next one. A batch
comes to a worker either as its *own*, in torch's order, or as *anybody's*:

    own        made in any case; the first that leaves something behind comes as `Carried`. From then on the worker
               makes its own batches only
    anybody's  `ForOwner`, and nothing is left behind, if there would be: its owner has to make it, in torch's order

What is noticed: draws from the global generators of `random`, numpy and torch; questions for the worker's number or
seed; and what changes in the places where the code of the dataset and of `collate_fn` could leave something (`seen`).
(What was missing or None may be set: that is how files are opened late.) Generators that the dataset holds itself are
found before (`survey`). What is inside of lists, dicts and foreign objects nobody can see.
"""

import ctypes
import random
import sys
from array import array
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from headrace.doors.torch.crew import Crew, seed_others
from headrace.doors.torch.seen import CHANGED, GROWN, SAME, SeenPlace, seen
from headrace.doors.torch.survey import Survey

GROWTHS = 8
"""How often something may come that was not there: files are opened once."""


class Carried(NamedTuple):
    """A batch that has left something behind in the worker that it belongs to."""

    batch: Any


class ForOwner:
    """In place of anybody's batch that has to be made by the worker it belongs to."""


class WorkerWatch:
    """What one worker compares before and after its batches."""

    now: "ClassVar[WorkerWatch | None]" = None
    """Of this process, if it is a worker that may make anybody's batches."""

    def __init__(self, crew: Crew, number: int) -> None:
        self._crew = crew
        self._number = number
        self.asked = False
        """Somebody wanted to know which worker this is."""
        self._carries = False
        self._bits = _LEGACY._bit_generator
        self._numpy = (ctypes.c_char * MT19937).from_address(self._bits.ctypes.state_address)
        self._before = (random_state(), self._numpy.raw)
        self._torch: bytes | None = None
        self.torch_came()
        self._seen = self._look()
        """None if not everything that has to be compared is known."""
        self._growths = 0

    def _look(self) -> list[SeenPlace] | None:
        return seen(Survey(self._crew.dataset, self._crew.collate_fn, trusting=True))

    def torch_came(self) -> None:
        """Torch is there, and its generator is seeded."""
        if "torch" in sys.modules:
            self._torch = torch_state()

    def make(self, batch: Callable[[], Any], own: bool) -> Any:
        """The batch, or what stands for it."""
        if self._carries:
            return batch() if own else ForOwner()
        try:
            made = batch()
        except BaseException:
            if not self._changed():
                raise
            if own:
                self._carries = True
                raise
            return self._refused()
        if not self._changed():
            return made
        if not own:
            return self._refused()
        self._carries = True
        return Carried(made)

    def _changed(self) -> bool:
        return (
            self.asked
            or random_state() != self._before[0]
            or self._numpy.raw != self._before[1]
            or _LEGACY._bit_generator is not self._bits
            or (self._torch is not None and torch_state() != self._torch)
            or self._left_something()
        )

    def _left_something(self) -> bool:
        if self._seen is None:
            return True
        differs = SAME
        for place in self._seen:
            if (found := place.differs()) != SAME:
                differs = max(differs, found)
        if differs != GROWN:
            return differs == CHANGED
        # What came can be changed by the next batch, so it is looked at from now on.
        self._growths += 1
        grown = self._look() if self._growths <= GROWTHS else None
        if grown is None:
            return True
        self._seen = grown
        return False

    def _refused(self) -> ForOwner:
        """Everything is as it was at the start of this worker."""
        self.asked = False
        _LEGACY._bit_generator = self._bits
        seed_others(self._crew.base_seed, self._number)
        if self._torch is not None:
            sys.modules["torch"].manual_seed(self._crew.base_seed + self._number)
        for place in self._seen or ():
            place.restore()
        return ForOwner()


# --- states of the global generators, as raw memory -------------------------------------------------------------------

MT19937 = 624 * 4 + 4
"""Bytes of the state of a Mersenne twister: 624 words, and where in them it stands."""
_LEGACY: Any = np.random.mtrand._rand
_INSTANCE: Any = random._inst


def _raw() -> "ctypes.Array[ctypes.c_char] | None":
    """The state inside of `random`, if it lies where CPython has it: `getstate()` costs as much as a small batch."""
    if sys.implementation.name != "cpython":
        return None
    raw = (ctypes.c_char * MT19937).from_address(id(_INSTANCE) + object.__basicsize__)
    *words, at = random.getstate()[1]
    return raw if raw.raw == array("I", [at, *words]).tobytes() else None


_RAW = _raw()


def random_state() -> object:
    return random.getstate() if _RAW is None else _RAW.raw


def torch_state() -> bytes:
    state: bytes = sys.modules["torch"].default_generator.get_state().numpy().tobytes()
    return state
