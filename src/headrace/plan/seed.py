"""Randomness is keyed, never carried: the only module that makes or touches random generators.

A key is a 64-bit number derived from what the randomness is *for* (seed, epoch, op, position). Whoever has the key has
the same random numbers, in any process and at any time, so a snapshot stores nothing about generators.

Threads never touch the global generators. Everyone else seeds them before a piece of work (`seed_globals`), and where
that happens in the user's own process, inside `BorrowedGlobals`, which gives the user's generators back as they were.
"""

import os
import random
import sys
from collections.abc import Callable
from hashlib import blake2b
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from operator import index
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    import numpy as np


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


def numbered(*parts: int | str | bytes) -> Callable[[int], int]:
    """`key(*parts, n)` for many n, at a third of the cost."""
    start = blake2b(_encode(parts), digest_size=8)

    def at(n: int) -> int:
        hashed = start.copy()
        hashed.update(b"i%d;" % n)
        return int.from_bytes(hashed.digest(), "little")

    return at


def generator(k: int) -> "np.random.Generator":
    """A new numpy generator that depends on the key only."""
    from numpy.random import Generator, Philox

    return Generator(Philox(key=k))


def fresh() -> int:
    """A new unpredictable seed of 63 bits. No generator is touched."""
    return int.from_bytes(os.urandom(8), "little") >> 1


def seed_globals(k: int) -> None:
    """Seed `random`, and `numpy.random` and torch's CPU generator where they are loaded.

    Each through its cheapest call: `torch.manual_seed` also visits every accelerator and costs more than a small batch.
    """
    Arrivals.latest = k
    random.seed(k)
    if "numpy" in sys.modules:
        # numpy loads this submodule on first use only: seeding must not depend on whether that has happened.
        import numpy.random

        numpy.random.seed(k & 0xFFFF_FFFF)
    torch_generator = _torch_generator()
    if torch_generator is not None:
        torch_generator.manual_seed(k & 0x7FFF_FFFF_FFFF_FFFF)


class Arrivals(MetaPathFinder):
    """Seeds numpy or torch at the moment when user code first imports it, with the key of the work at hand.

    Without it, the first work that draws from a library would depend on who had imported that library before.
    """

    latest: int | None = None
    _after_torch: ClassVar[list[Callable[[], None]]] = []
    _installed = False
    _looking = False

    @classmethod
    def watch(cls, after_torch: Callable[[], None] | None = None) -> None:
        """Begin; `after_torch` is called once torch has been imported."""
        if after_torch is not None:
            cls._after_torch.append(after_torch)
        if not cls._installed and not {"numpy", "torch"} <= sys.modules.keys():
            cls._installed = True
            sys.meta_path.insert(0, cls())

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname not in ("numpy", "torch") or Arrivals._looking:
            return None
        Arrivals._looking = True
        try:
            spec = find_spec(fullname)
        finally:
            Arrivals._looking = False
        if spec is not None and spec.loader is not None:
            run: Any = spec.loader.exec_module

            def run_and_seed(module: Any) -> None:
                run(module)
                if fullname == "torch":
                    for call in Arrivals._after_torch:
                        call()
                if Arrivals.latest is not None:
                    seed_globals(Arrivals.latest)

            spec.loader.exec_module = run_and_seed  # type: ignore[method-assign]
        return spec


class BorrowedGlobals:
    """Lends the global generators to work that runs in the user's process.

        with borrowed:
            ...             the global generators are ours, and go on from our last block (the first is unpredictable)
        ...                 the user's own are back, exactly as they were

    The object is made once and entered many times, never inside itself. A library that is first imported inside the
    block is left alone until the next one. numpy's bit generator is swapped, since saving and restoring its state
    would cost several times all the rest.
    """

    __slots__ = ("_numpy", "_random", "_swapped", "_torch")

    def __init__(self) -> None:
        # Our next seed outside the block, the user's state inside it. Taking ours out whole as well would cost 10 us.
        self._random: Any = fresh()
        # These hold our state outside the block and the user's inside it.
        self._numpy: Any = None
        self._torch: Any = None
        self._swapped: tuple[bool, bool] | None = None

    def __enter__(self) -> Self:
        if self._swapped is not None:
            raise RuntimeError("BorrowedGlobals was entered inside itself; leave the first block before the next")
        numpy_loaded = "numpy" in sys.modules
        torch_generator = _torch_generator()
        if numpy_loaded and self._numpy is None:
            from numpy.random import MT19937

            self._numpy = (MT19937(fresh()), _NO_GAUSS)
        if torch_generator is not None and self._torch is None:
            self._torch = type(torch_generator)().manual_seed(fresh()).get_state()
        self._swapped = (numpy_loaded, torch_generator is not None)
        state = random.getstate()
        random.seed(self._random)
        self._random = state
        self._swap(*self._swapped)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        swapped, self._swapped = self._swapped, None
        if swapped is None:
            return
        seed = random.getrandbits(64)
        random.setstate(self._random)
        self._random = seed
        self._swap(*swapped)

    def _swap(self, with_numpy: bool, with_torch: bool) -> None:
        if with_numpy:
            self._numpy = _swap_numpy(*self._numpy)
        if with_torch:
            torch_generator = _torch_generator()
            state = torch_generator.get_state()
            torch_generator.set_state(self._torch)
            self._torch = state


def _torch_generator() -> Any:
    """Torch's CPU generator, or None while torch is not loaded (or only half loaded, by another thread)."""
    return getattr(sys.modules.get("torch"), "default_generator", None)


_NO_GAUSS: dict[str, Any] = {"bit_generator": "", "state": None, "has_gauss": 0, "gauss": 0.0}


class _Nothing:
    """Stands in for a bit generator while only the normal draw that numpy keeps beside it is read or written.

    numpy makes legacy normal draws in pairs and keeps the second one. Swapping bit generators forgets it, and the calls
    that would read it also copy 624 words, at ten times the cost of the swap.
    """

    @property
    def state(self) -> dict[str, Any]:
        return {"bit_generator": "MT19937", "state": None}

    @state.setter
    def state(self, value: dict[str, Any]) -> None:
        pass


_NOTHING = _Nothing()


def _swap_numpy(bits: Any, gauss: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Put a bit generator and its kept normal draw in place of the global ones, and return those."""
    import numpy.random

    # numpy's stubs do not list these, and `_rand` is the object that all of numpy.random's functions are methods of.
    module: Any = numpy.random
    legacy = module.mtrand._rand
    old_bits = module.get_bit_generator()
    legacy._bit_generator = _NOTHING
    try:
        old_gauss: dict[str, Any] = legacy.get_state(legacy=False)
    finally:
        legacy._bit_generator = old_bits
    module.set_bit_generator(bits)
    if gauss["has_gauss"]:
        legacy._bit_generator = _NOTHING
        try:
            legacy.set_state(gauss)
        finally:
            legacy._bit_generator = bits
    return old_bits, old_gauss
