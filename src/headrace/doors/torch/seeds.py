"""Random generators as torch's DataLoader uses them: seeded once per worker, then carried.

Worker i of an epoch with base seed b has `random` and torch seeded with b + i, and numpy's global generator seeded with
four words of `SeedSequence([i, b])`. The other functions take the states of generators out as plain data for a
snapshot, and put them back.
"""

import random
from array import array
from typing import Any

import numpy as np
import torch

from headrace.doors.torch.context import generators
from headrace.errors import SnapshotRefused


def base_seed(generator: torch.Generator | None) -> int:
    """The number that torch draws once per iterator, from the loader's generator or the global one."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


class Globals:
    """The state of the global generators, to be put back later."""

    __slots__ = ("_numpy", "_random", "_torch")

    def __init__(self) -> None:
        self._random = random.getstate()
        self._numpy = np.random.get_state()
        self._torch = torch.get_rng_state()

    def put_back(self) -> None:
        random.setstate(self._random)
        np.random.set_state(self._numpy)
        torch.set_rng_state(self._torch)


def generator_state(generator: torch.Generator = torch.default_generator) -> bytes:
    """The state of a generator, or of torch's global one, as plain data."""
    return generator.get_state().numpy().tobytes()


def set_generator_state(saved: object, generator: torch.Generator = torch.default_generator) -> None:
    if not isinstance(saved, bytes):
        raise SnapshotRefused(f"the state of a torch generator is bytes in a snapshot, not {type(saved).__name__}")
    try:
        generator.set_state(torch.frombuffer(bytearray(saved), dtype=torch.uint8))
    except (RuntimeError, ValueError) as refused:
        raise SnapshotRefused(f"the snapshot's generator state does not fit this generator: {refused}") from refused


def global_others() -> list[Any]:
    """The states of `random` and `numpy.random`, as plain data."""
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return [
        _python_state(random._inst),
        [name, np.asarray(keys, np.uint32).tobytes(), int(position), int(has_gauss), float(cached)],
    ]


def set_global_others(saved: Any) -> None:
    try:
        python, (name, keys, position, has_gauss, cached) = saved
        _set_python_state(python, random._inst)
        np.random.set_state((name, np.frombuffer(bytes(keys), np.uint32), position, has_gauss, cached))
    except (TypeError, ValueError) as refused:
        raise SnapshotRefused(f"the snapshot's generator states cannot be read: {refused}") from refused


def own_generators(holder: Any) -> list[tuple[str, Any]]:
    """Random generators that an object keeps under names of its own, by these names."""
    types, shared = generators()
    without_state = (random.SystemRandom, np.random.SeedSequence)
    return [
        (name, one)
        for name, one in getattr(holder, "__dict__", {}).items()
        if name != "generator" and isinstance(one, types) and not isinstance(one, without_state) and one not in shared
    ]


def own_state(generator: Any) -> Any:
    """The state of a generator of torch's, numpy's or Python's that user code holds, as plain data."""
    if isinstance(generator, torch.Generator):
        return generator_state(generator)
    if isinstance(generator, random.Random):
        return _python_state(generator)
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    return getattr(generator, "bit_generator", generator).state


def set_own_state(saved: Any, generator: Any) -> None:
    if isinstance(generator, torch.Generator):
        set_generator_state(saved, generator)
        return
    try:
        if isinstance(generator, random.Random):
            _set_python_state(saved, generator)
        elif isinstance(generator, np.random.RandomState):
            generator.set_state(saved)
        else:
            getattr(generator, "bit_generator", generator).state = saved
    except (TypeError, ValueError, LookupError) as refused:
        raise SnapshotRefused(f"the snapshot's generator state does not fit this generator: {refused}") from refused


def _python_state(generator: random.Random) -> list[Any]:
    version, words, gauss = generator.getstate()
    return [version, array("I", words).tobytes(), gauss]


def _set_python_state(saved: Any, generator: random.Random) -> None:
    version, words, gauss = saved
    generator.setstate((version, tuple(array("I", bytes(words))), gauss))
