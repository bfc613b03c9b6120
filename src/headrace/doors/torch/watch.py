"""Watch: notices in a worker whether a batch has left anything behind that a later batch of that worker would see.

torch's worker k mod num_workers makes batch k, with generators that go on from its batch before. As long as no batch
has drawn from them, it makes no difference who makes which batch, so whoever is free may take the next one. A batch
comes to a worker either as its *own*, in torch's order, or as *anybody's*:

    own        made in any case; the first that leaves something behind comes as `Carried`. From then on the worker
               makes its own batches only
    anybody's  `ForOwner`, and nothing is left behind, if there would be: its owner has to make it, in torch's order

What is noticed: draws from the global generators of `random`, numpy and torch; questions for the worker's number or
seed; attributes that are set anew in the objects that the dataset and `collate_fn` consist of. (One that was missing or
None may be set: that is how files are opened late.) Generators that the dataset holds itself are found before
(`holds_generator`). What is inside of lists, dicts and foreign objects nobody can see.
"""

import ctypes
import random
import sys
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from types import FunctionType, MethodType, ModuleType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from headrace.doors.torch.crew import Crew, seed_others

MOST = 2000
"""Objects that are looked at, and"""
WIDE = 64
"""elements of each container among them."""
WATCHED = 16
"""Objects whose attributes are compared after each batch."""
FOREIGN = frozenset(["builtins", "numpy", "torch", "torchvision", "pandas", "pyarrow", "polars", "PIL"])
"""Packages whose functions keep nothing between two calls but what the global generators show."""


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
        self._attributes = [(its, dict(its)) for its in islice(_watched(crew.dataset, crew.collate_fn), WATCHED)]

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
            or any(_set_anew(now, before) for now, before in self._attributes)
        )

    def _refused(self) -> ForOwner:
        """Everything is as it was at the start of this worker."""
        self.asked = False
        _LEGACY._bit_generator = self._bits
        seed_others(self._crew.base_seed, self._number)
        if self._torch is not None:
            sys.modules["torch"].manual_seed(self._crew.base_seed + self._number)
        for now, before in self._attributes:
            now.clear()
            now.update(before)
        return ForOwner()


def _set_anew(now: dict[str, Any], before: dict[str, Any]) -> bool:
    """Whether an attribute is another one than before; those that were missing or None may be set, and are noted."""
    new: dict[str, Any] = {}
    for name, value in now.items():
        was = before.get(name)
        if was is value or (type(value) in _PLAIN and type(was) is type(value) and was == value):
            continue
        if was is not None or holds_generator(value):
            return True
        new[name] = value
    before.update(new)
    return len(now) != len(before)


_PLAIN = (bool, int, float, str, bytes)


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


# --- what a dataset consists of ---------------------------------------------------------------------------------------


def holds_generator(*things: object) -> bool:
    """Whether these hold a random generator of their own, or call a function that uses one."""
    kinds: tuple[type, ...] = (random.Random, np.random.Generator, np.random.RandomState)
    if "torch" in sys.modules:
        kinds = (*kinds, sys.modules["torch"].Generator)
    common = (_INSTANCE, _LEGACY, getattr(sys.modules.get("torch"), "default_generator", None))
    return any(isinstance(thing, kinds) and not any(thing is c for c in common) for thing in reachable(*things))


def reachable(*things: object) -> Iterator[object]:
    """The things, then what they consist of, nearest first, as far as that can be said without running anything."""
    seen: set[int] = set()
    waiting = deque(things)
    while waiting and len(seen) < MOST:
        thing = waiting.popleft()
        if id(thing) in seen or type(thing) in _PLAIN or isinstance(thing, type | ModuleType):
            continue
        seen.add(id(thing))
        yield thing
        waiting.extend(_parts(thing))


def _parts(thing: Any) -> Iterator[Any]:
    if isinstance(thing, dict):
        yield from islice(thing.values(), WIDE)
    elif isinstance(thing, list | tuple | set | frozenset | deque):
        yield from islice(thing, WIDE)
    elif isinstance(thing, FunctionType):
        yield from _used(thing)
    elif isinstance(thing, MethodType):
        yield from (thing.__self__, thing.__func__)
    elif isinstance(thing, partial):
        yield from (thing.func, thing.args, thing.keywords)
    elif (its := _attributes(thing)) is not None:
        yield from islice(its.values(), WIDE)
    if not isinstance(thing, FunctionType):
        for kind in type(thing).__mro__:
            if not _foreign(kind):
                yield from (part for part in vars(kind).values() if isinstance(part, FunctionType))


def _watched(*things: object) -> Iterator[dict[str, Any]]:
    """The attributes of those objects whose code is the user's."""
    for thing in reachable(*things):
        its = _attributes(thing)
        if its is not None and not isinstance(thing, FunctionType) and not _foreign(type(thing)):
            yield its


def _used(function: FunctionType) -> Iterator[Any]:
    """What a function refers to."""
    if _foreign(function):
        return
    yield from function.__defaults__ or ()
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            pass  # it is not set yet
    names = function.__globals__
    yield from (names[name] for name in function.__code__.co_names if name in names)


def _attributes(thing: object) -> dict[str, Any] | None:
    """The attributes of an object, without asking the object for them."""
    try:
        found = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return None
    return found if isinstance(found, dict) else None


def _foreign(thing: Any) -> bool:
    return str(thing.__module__).partition(".")[0] in FOREIGN
