"""Keyed generators: the random numbers of `Generator(Philox(key=k))`, in a fifth of the time to make one.

Philox asks the system for entropy even when it is given a key, and throws it away: 14 of the 18 us that a generator
takes, for each sample. A seed sequence that returns the key saves that, and makes `rng.spawn()` depend on the key too.
"""

from typing import Any

import numpy as np
from numpy.random import Generator, Philox, SeedSequence
from numpy.random.bit_generator import ISpawnableSeedSequence


class KeySequence(ISpawnableSeedSequence):
    """Gives Philox its key as it is; children come from numpy's own sequence of that key."""

    def __init__(self, k: int) -> None:
        self._key = k
        self._children: SeedSequence | None = None

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        if n_words == 2 and dtype is np.uint64:  # what Philox asks for
            return np.array((self._key, 0), np.uint64)
        return SeedSequence(self._key).generate_state(n_words, dtype)

    def spawn(self, n_children: int) -> Any:
        if self._children is None:
            self._children = SeedSequence(self._key)
        return self._children.spawn(n_children)


def keyed(k: int) -> Generator:
    sequence: Any = KeySequence(k)  # (numpy's stubs know its own sequences only)
    return Generator(Philox(sequence))
