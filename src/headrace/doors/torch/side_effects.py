"""Side effects: whether a batch has left anything behind in its worker that a later batch of that worker would see.

torch's worker k mod num_workers makes batch k, with generators that go on from its batch before. As long as no batch
has drawn from them, it makes no difference which worker makes which batch, so a worker that is free may steal the next
one (`stealing` decides that in the consumer). A batch comes to a worker either pinned, in torch's order, or stolen:

    pinned   it is made in any case; the first one with side effects comes back as `WithSideEffects`, and from then on
             this worker refuses to steal
    stolen   if it has side effects they are undone, and `StealRefused` comes back: the worker that torch would have
             given the batch to has to make it, in torch's order

What counts as a side effect: draws from the global generators of `random`, numpy and torch; questions for the worker's
number or seed; and changes in anything that the code of the dataset and of `collate_fn` could change (`scan`). (An
attribute that was not there or None may be set, as when a file is opened late, a few times, but not to plain data: that
could come from the sample.) What is inside of lists, dicts and objects of other
packages is not seen.
"""

import ctypes
import random
import sys
from array import array
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from headrace.doors.torch.context import WorkerContext, seed_others
from headrace.doors.torch.scan import StateScan, is_plain
from headrace.doors.torch.variables import Content, new_values

GROWTHS = 32
"""How often variables that were not set may be set: files are opened once."""
HEADER = 512
"""Bytes at the start of torch's generator in which its state begins."""

_NUMPY: Any = np.random


class WithSideEffects(NamedTuple):
    """A pinned batch that has left something behind in its worker."""

    batch: Any


class StealRefused:
    """In place of a stolen batch: the worker that torch would give it to has to make it."""


class SideEffectCheck:
    """Compares, in one worker, what was before a batch with what is after it."""

    now: "ClassVar[SideEffectCheck | None]" = None
    """Of this process, if it is a worker that may steal."""

    def __init__(self, context: WorkerContext, number: int) -> None:
        self._context = context
        self._number = number
        self.asked = False
        """User code has asked which worker this is."""
        self._found = False
        """A pinned batch had side effects: from now on nothing is stolen, and nothing compared."""
        self._growths = 0
        self._states: list[tuple[Callable[[], object], object]] = []
        self._generators = [
            Content(_state_of_numpy(), partial(_NUMPY.set_bit_generator, _NUMPY.get_bit_generator())),
            Content(_state_of_random(), partial(seed_others, context.base_seed, number)),
        ]
        self.torch_imported()
        self._note(self._scan())

    def torch_imported(self) -> None:
        """Torch is there, and its generator is seeded."""
        if (torch := sys.modules.get("torch")) is not None:
            state = _state_of_torch()
            self._generators.append(Content(state, partial(torch.manual_seed, self._context.base_seed + self._number)))
            self._states.append((state, state()))

    def _scan(self) -> StateScan:
        return StateScan(self._context.dataset, self._context.collate_fn, trusting=True)

    def _note(self, scan: StateScan) -> None:
        """Remember how everything is now, for comparison after the next batch."""
        self._safe = scan.safe
        self._contents = scan.contents
        self._states = [(content.read, content.read()) for content in (*self._generators, *self._contents)]
        self._mutable = [(variables, dict(variables.read())) for variables in scan.mutable]
        self._growing = [(variables, dict(variables.read())) for variables in scan.growing]
        self._spaces = [variables.read() for variables in scan.growing]
        self._names = sum(map(len, self._spaces))

    def make(self, batch: Callable[[int, Any], Any], first: int, index: object, pinned: bool) -> Any:
        """The batch; `WithSideEffects` for the first pinned one that has any, `StealRefused` for a stolen one."""
        if self._found:
            return batch(first, index) if pinned else StealRefused()
        try:
            made = batch(first, index)
        except BaseException:
            if self._changed() and self._undone(pinned):
                return StealRefused()
            raise
        if not self._changed():
            return made
        return StealRefused() if self._undone(pinned) else WithSideEffects(made)

    def _changed(self) -> bool:
        """Whether the batch had side effects."""
        if self.asked or not self._safe:
            return True
        for state, was in self._states:
            if state() != was:
                return True
        mutable = self._mutable
        if self._growing and sum(map(len, self._spaces)) != self._names:
            mutable = [*mutable, *self._growing]
        if not mutable:
            return False
        new: list[Any] = []
        for variables, before in mutable:
            found = new_values(before, variables.read())
            if found is None:
                return True
            new += found
        return bool(new) and not self._may_come(new)

    def _may_come(self, new: list[Any]) -> bool:
        """Whether these values of variables that were not set before are no side effect: files are opened late."""
        self._growths += 1
        if self._growths > GROWTHS or any(map(is_plain, new)):
            return False
        scan = self._scan()  # the next batch can change what came
        if scan.safe:
            self._note(scan)
        return scan.safe

    def _undone(self, pinned: bool) -> bool:
        """Undo the side effects of a stolen batch: True. A pinned batch keeps them."""
        if pinned:
            self._found = True
            return False
        self.asked = False
        for variables, before in (*self._mutable, *self._growing):
            variables.restore(before)
        for content in (*self._generators, *self._contents):
            content.restore()
        self._note(self._scan())
        return True


# --- states of the global generators, as raw memory -------------------------------------------------------------------

WORDS = 624
"""Words of four bytes that a Mersenne twister has; one more tells how many of them are used."""
NEAR = 20
"""Bytes of that number and of the words next to it: each draw changes the number, or all words."""


def _memory(address: int, size: int = NEAR) -> Callable[[], bytes]:
    """A function that gives what stands in memory there."""
    return memoryview((ctypes.c_char * size).from_address(address)).tobytes


def _state_of_random() -> Callable[[], object]:
    """The state inside of `random`, if it lies where CPython has it: `getstate()` costs as much as a small batch."""
    address = id(random._inst) + object.__basicsize__
    *words, at = random.getstate()[1]
    known = array("I", [at, *words]).tobytes()
    if sys.implementation.name != "cpython" or _memory(address, len(known))() != known:
        return random.getstate
    return _memory(address)


def _state_of_numpy() -> Callable[[], object]:
    legacy: Any = _NUMPY.mtrand._rand
    bits = legacy._bit_generator
    state = _memory(bits.ctypes.state_address + 4 * (WORDS + 1) - NEAR)
    return lambda: state() if legacy._bit_generator is bits else None


def _state_of_torch() -> Callable[[], object]:
    """The state inside of torch's generator, if it is found behind the header."""
    generator: Any = sys.modules["torch"].default_generator
    state = generator.get_state().numpy().tobytes()
    known = array("I", memoryview(state)[24 : 24 + 8 * WORDS].cast("Q").tolist()).tobytes()
    address = getattr(generator, "_cdata", 0)
    header = ctypes.string_at(address, HEADER).find(known[:NEAR]) if address else -1
    if header < 4 or _memory(address + header, len(known))() != known:
        return lambda: generator.get_state().numpy().tobytes()
    return _memory(address + header - 4)
