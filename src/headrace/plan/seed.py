"""Randomness is keyed, never carried: the only module, with `plan/keyed.py`, that makes or touches random generators.

A key is a 64-bit number derived from what the randomness is *for* (seed, epoch, op, position). The same key gives the
same random numbers in any process and at any time, so a snapshot stores nothing about generators.

Worker threads never touch the global generators. Worker processes seed them before each piece of work (`seed_globals`).
Work that runs in the user's own process does so inside `BorrowedGlobals`, which gives the user's generators back as
they were.
"""

import _thread
import os
import random
import sys
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from operator import index
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")


def key(*parts: int | str | bytes) -> int:
    """The 64-bit key of these parts. Different parts, or the same bytes cut differently, give different keys."""
    return int.from_bytes(blake2b(_encode(parts), digest_size=8).digest(), "little")


def _encode(parts: tuple[int | str | bytes, ...]) -> bytes:
    encoded = b""
    for part in parts:
        # Every part is written as tag, length, body: no two lists of parts share an encoding.
        if isinstance(part, str):
            body = part.encode("utf-8", "surrogatepass")
            encoded += b"s%d:%b" % (len(body), body)
        elif isinstance(part, bytes):
            encoded += b"b%d:%b" % (len(part), part)
        else:
            # Any integer type is welcome (numpy's too); floats are not, since equal-looking floats may differ.
            encoded += b"i%d;" % index(part)
    return encoded


def numbered_keys(*parts: int | str | bytes) -> Callable[[int], int]:
    """`key(*parts, n)` for many n, at a third of the cost."""
    start = blake2b(_encode(parts), digest_size=8)

    def at(n: int) -> int:
        hashed = start.copy()
        hashed.update(b"i%d;" % n)
        return int.from_bytes(hashed.digest(), "little")

    return at


def generator(k: int) -> "np.random.Generator":
    """A new numpy generator that depends on the key only."""
    from headrace.plan.keyed import keyed

    return keyed(k)


def fresh() -> int:
    """A new unpredictable seed of 63 bits. No generator is touched."""
    return int.from_bytes(os.urandom(8), "little") >> 1


def seed_globals(k: int) -> None:
    """Seed `random`, and `numpy.random` and torch's CPU generator where they are loaded.

    Each through its cheapest call: `torch.manual_seed` also visits every accelerator and costs more than a small batch.
    """
    ImportWatcher.latest = k
    random.seed(k)
    if "numpy" in sys.modules:
        _numpy_seed()(k & 0xFFFF_FFFF)
    torch_generator = _torch_generator()
    if torch_generator is not None:
        torch_generator.manual_seed(k & 0x7FFF_FFFF_FFFF_FFFF)


@cache
def _numpy_seed() -> Callable[[int], None]:
    # numpy loads this submodule on first use only: seeding must not depend on whether that has happened.
    import numpy.random

    return numpy.random.seed


class ImportWatcher:
    """An import hook that calls back when user code first imports a module.

    numpy and torch are also seeded then, with the key of the current work: otherwise the first random numbers of a
    library would depend on whether it had been imported before.
    """

    latest: int | None = None
    _calls: ClassVar[dict[str, list[Callable[[], None]]]] = {}
    _looking = False

    @classmethod
    def watch(cls, name: str, *calls: Callable[[], None]) -> None:
        """Call these once the module is imported; nothing, if it is imported already."""
        if name not in sys.modules:
            if not cls._calls:
                sys.meta_path.insert(0, cls())
            cls._calls.setdefault(name, []).extend(calls)

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname not in ImportWatcher._calls or ImportWatcher._looking:
            return None
        ImportWatcher._looking = True
        try:
            spec = find_spec(fullname)
        finally:
            ImportWatcher._looking = False
        if spec is not None and spec.loader is not None:
            run: Any = spec.loader.exec_module

            def run_and_call(module: object) -> None:
                run(module)
                for call in ImportWatcher._calls[fullname]:
                    call()
                if fullname in ("numpy", "torch") and ImportWatcher.latest is not None:
                    seed_globals(ImportWatcher.latest)

            spec.loader.exec_module = run_and_call  # type: ignore[method-assign]
        return spec


class BorrowedGlobals:
    """Lends the global generators to work that runs in the user's process.

        with borrowed:
            ...             the global generators are ours, and go on from our last block (the first is unpredictable)
        ...                 the user's own are back, exactly as they were

    The object is made once and entered many times, never inside itself. There is one set of global generators: while
    one thread has borrowed them, other threads that want to wait; not for ever, since the first may be waiting for one
    of them. A library that is first imported inside the block is left alone until the next one. numpy's bit generator
    is swapped, because saving and restoring its state costs several times as much as everything else.

    With `goes_on=False` the work seeds the generators itself before it draws: then `random` need not go on from our
    last block, which saves a sixth of the cost of a small batch.
    """

    __slots__ = ("_first", "_goes_on", "_ours", "_patience", "_users")

    def __init__(self, goes_on: bool = True) -> None:
        self._goes_on = goes_on
        # Of `random` a seed only: taking our state out whole would cost 10 us.
        self._ours = _Generators(fresh(), None, None)
        self._users: _Generators | None = None
        """The states of the user's generators, inside the block."""
        self._first = False
        """This thread had not borrowed them before it entered the block."""
        self._patience = PATIENCE

    def run(self, work: Callable[[], T]) -> T:
        """What `work` returns; an interrupt at any moment leaves the user's generators as they were."""
        try:
            with self:
                return work()
        finally:
            self._give_back()  # an interrupt may have come before the first line of __exit__

    def __enter__(self) -> Self:
        if self._users is not None:
            raise RuntimeError("BorrowedGlobals was entered inside itself; leave the first block before the next")
        with_numpy, torch_generator = "numpy" in sys.modules, _torch_generator()
        numpy, torch = self._ours.numpy, self._ours.torch
        if with_numpy and numpy is None:
            from numpy.random import MT19937

            numpy = (MT19937(fresh()), _NO_GAUSS)
        if torch_generator is not None and torch is None:
            torch = type(torch_generator)().manual_seed(fresh()).get_state()
        self._first = not _LENT._is_owned()
        try:
            if self._first and not _LENT.acquire(timeout=self._patience):
                self._share()
                return self
            self._users = _Generators(
                random.getstate(),
                _numpy_generator() if with_numpy else None,
                None if torch_generator is None else torch_generator.get_state(),
            )
            if self._goes_on:
                random.seed(self._ours.random)
            _put(numpy, torch)
        except BaseException:
            self._give_back()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        users = self._users
        if users is None:
            self._give_back()
            return
        try:
            torch = None if users.torch is None else _torch_generator().get_state()
            numpy = None if users.numpy is None else _numpy_generator()
            self._ours = _Generators(random.getrandbits(64) if self._goes_on else 0, numpy, torch)
        finally:
            try:
                self._give_back()
            except BaseException:
                self._give_back()  # (Whatever was put back already is put back once more.)
                raise

    def _share(self) -> None:
        """Go on with generators that another thread has borrowed, and warn once."""
        if self._patience:
            import logging  # (The server that forks workers imports this module, and little else.)

            self._patience = 0.0
            logging.getLogger("headrace").warning(
                "two threads run loaders without workers, and one has held the global random generators for %g s: from "
                "now on they share them, and values drawn from these may differ from run to run; use headrace.rng(), "
                "or give one of the loaders workers",
                PATIENCE,
            )

    def _give_back(self) -> None:
        users = self._users
        if users is not None:
            random.setstate(users.random)
            _put(users.numpy, users.torch)
            self._users = None
        if self._first and _LENT._is_owned():
            _LENT.release()


class _Generators(NamedTuple):
    """States of the global generators; None: that library is not loaded."""

    random: Any
    numpy: "tuple[Any, dict[str, Any]] | None"
    torch: Any


PATIENCE = 10.0
"""Seconds that a thread waits for another to give the generators back; one piece of work seldom takes longer."""
_LENT: Any = _thread.RLock()
"""Held by the thread that has borrowed the global generators."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_LENT._at_fork_reinit)  # the thread that held it is not in the copy


def _put(numpy: "tuple[Any, dict[str, Any]] | None", torch: Any) -> None:
    """Give these states to the global generators of numpy and torch."""
    if numpy is not None:
        _put_numpy(*numpy)
    if torch is not None:
        _torch_generator().set_state(torch)


def _torch_generator() -> Any:
    """Torch's CPU generator, or None while torch is not loaded (or only half loaded, by another thread)."""
    return getattr(sys.modules.get("torch"), "default_generator", None)


_NO_GAUSS: dict[str, Any] = {"bit_generator": "", "state": None, "has_gauss": 0, "gauss": 0.0}


class _GaussOnly:
    """Stands in for a bit generator while only the normal draw that numpy keeps beside it is read or written.

    numpy makes legacy normal draws in pairs and keeps the second one. Swapping bit generators loses it, and the calls
    that read it also copy 624 words, at ten times the cost of the swap: with this stand-in they copy none. A thread
    that draws meanwhile gets the bit generator itself.
    """

    __slots__ = ("_bits",)

    def __init__(self, bits: object) -> None:
        self._bits = bits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bits, name)

    @property
    def state(self) -> dict[str, Any]:
        return {"bit_generator": "MT19937", "state": None}

    @state.setter
    def state(self, value: dict[str, Any]) -> None:
        pass


def _numpy_generator() -> tuple[Any, dict[str, Any]]:
    """The global bit generator of numpy, and the normal draw that is kept beside it."""
    import numpy.random

    # numpy's stubs do not list these, and `_rand` is the object that all of numpy.random's functions are methods of.
    module: Any = numpy.random
    legacy, bits = module.mtrand._rand, module.get_bit_generator()
    try:
        legacy._bit_generator = _GaussOnly(bits)
        return bits, legacy.get_state(legacy=False)
    finally:
        legacy._bit_generator = bits


def _put_numpy(bits: Any, gauss: dict[str, Any]) -> None:
    import numpy.random

    module: Any = numpy.random
    legacy = module.mtrand._rand
    module.set_bit_generator(bits)
    if gauss["has_gauss"]:
        try:
            legacy._bit_generator = _GaussOnly(bits)
            legacy.set_state(gauss)
        finally:
            legacy._bit_generator = bits
