"""Watch: notices in a worker whether a batch has left anything behind that a later batch of that worker would see.

torch's worker k mod num_workers makes batch k, with generators that go on from its batch before. As long as no batch
has drawn from them, it makes no difference who makes which batch, so whoever is free may take the next one. A batch
comes to a worker either as its *own*, in torch's order, or as *anybody's*:

    own        made in any case; the first that leaves something behind comes as `Carried`. From then on the worker
               makes its own batches only
    anybody's  `ForOwner`, and nothing is left behind, if there would be: its owner has to make it, in torch's order

What is noticed: draws from the global generators of `random`, numpy and torch; questions for the worker's number or
seed; and what changes in all that the code of the dataset and of `collate_fn` could leave something in (`survey`).
What was missing or None may be set: that is how files are opened late. (Anybody's batch must not set plain data so: it
could be that of the first batch.) What is inside of lists, dicts and foreign objects nobody can see.
"""

import ctypes
import random
import sys
from array import array
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from headrace.doors.torch.crew import Crew, seed_others
from headrace.doors.torch.survey import Survey, is_plain
from headrace.doors.torch.variables import Content, came

GROWTHS = 32
"""How often something may come that was not there: files are opened once."""
HEADER = 512
"""Bytes at the start of torch's generator in which its state begins."""

_NUMPY: Any = np.random


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
        self._growths = 0
        self._states: list[tuple[Callable[[], object], object]] = []
        self._generators = [
            Content(_state_of_numpy(), partial(_NUMPY.set_bit_generator, _NUMPY.get_bit_generator())),
            Content(_state_of_random(), partial(seed_others, crew.base_seed, number)),
        ]
        self.torch_came()
        self._note(self._survey())

    def torch_came(self) -> None:
        """Torch is there, and its generator is seeded."""
        if (torch := sys.modules.get("torch")) is not None:
            state = _state_of_torch()
            self._generators.append(Content(state, partial(torch.manual_seed, self._crew.base_seed + self._number)))
            self._states.append((state, state()))

    def _survey(self) -> Survey:
        return Survey(self._crew.dataset, self._crew.collate_fn, trusting=True)

    def _note(self, survey: Survey) -> None:
        """How everything is now."""
        self._clear = survey.clear
        self._contents = survey.contents
        self._states = [(content.read, content.read()) for content in (*self._generators, *self._contents)]
        self._watched = [(its, dict(its.read())) for its in survey.watched]
        self._still = [(its, dict(its.read())) for its in survey.still]
        self._spaces = [its.read() for its in survey.still]
        self._names = sum(map(len, self._spaces))

    def make(self, batch: Callable[[int, Any], Any], first: int, index: object, own: bool) -> Any:
        """The batch, or what stands for it."""
        if self._carries:
            return batch(first, index) if own else ForOwner()
        try:
            made = batch(first, index)
        except BaseException:
            if self._changed(own):
                if not own:
                    return self._refused()
                self._carries = True
            raise
        if not self._changed(own):
            return made
        if not own:
            return self._refused()
        self._carries = True
        return Carried(made)

    def _changed(self, own: bool) -> bool:
        if self.asked or not self._clear:
            return True
        for state, was in self._states:
            if state() != was:
                return True
        watched = self._watched
        if self._still and sum(map(len, self._spaces)) != self._names:
            watched = [*watched, *self._still]
        if not watched:
            return False
        new: list[Any] = []
        for its, before in watched:
            found = came(before, its.read())
            if found is None:
                return True
            new += found
        return bool(new) and not self._may_come(new, own)

    def _may_come(self, new: list[Any], own: bool) -> bool:
        self._growths += 1
        if self._growths > GROWTHS or (not own and any(map(is_plain, new))):
            return False
        survey = self._survey()  # the next batch can change what came
        if survey.clear:
            self._note(survey)
        return survey.clear

    def _refused(self) -> ForOwner:
        """Everything is as it was before the batch."""
        self.asked = False
        for its, before in (*self._watched, *self._still):
            its.write(before)
        for content in (*self._generators, *self._contents):
            content.restore()
        self._note(self._survey())
        return ForOwner()


# --- states of the global generators, as raw memory -------------------------------------------------------------------

WORDS = 624
"""Of a Mersenne twister, of four bytes each; one more tells where in them it stands."""
NEAR = 20
"""Bytes of that number and of the words next to it: with each draw it changes, or all of them do."""


def _memory(address: int, size: int = NEAR) -> "ctypes.Array[ctypes.c_char]":
    return (ctypes.c_char * size).from_address(address)


def _state_of_random() -> Callable[[], object]:
    """The state inside of `random`, if it lies where CPython has it: `getstate()` costs as much as a small batch."""
    address = id(random._inst) + object.__basicsize__
    *words, at = random.getstate()[1]
    known = array("I", [at, *words]).tobytes()
    if sys.implementation.name != "cpython" or _memory(address, len(known)).raw != known:
        return random.getstate
    raw = _memory(address)
    return lambda: raw.raw


def _state_of_numpy() -> Callable[[], object]:
    legacy: Any = _NUMPY.mtrand._rand
    bits = legacy._bit_generator
    raw = _memory(bits.ctypes.state_address + 4 * (WORDS + 1) - NEAR)
    return lambda: raw.raw if legacy._bit_generator is bits else None


def _state_of_torch() -> Callable[[], object]:
    """The same inside of torch, if it lies behind the header of its generator."""
    generator: Any = sys.modules["torch"].default_generator
    state = generator.get_state().numpy().tobytes()
    known = array("I", memoryview(state)[24 : 24 + 8 * WORDS].cast("Q").tolist()).tobytes()
    address = getattr(generator, "_cdata", 0)
    header = ctypes.string_at(address, HEADER).find(known[:NEAR]) if address else -1
    if header < 4 or _memory(address + header, len(known)).raw != known:
        return lambda: generator.get_state().numpy().tobytes()
    raw = _memory(address + header - 4)
    return lambda: raw.raw
