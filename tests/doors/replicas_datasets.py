"""Data sets for the tests of the replica-aware loader, in a module that workers import quickly."""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Numbers:
    """Map-style: sample i is i."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, i: int) -> int:
        if not 0 <= i < self.size:
            raise IndexError(i)
        return i


class Rows(Numbers):
    """Sample i is a pair: an array full of i, large enough to travel through shared memory in a batch, and i."""

    def __getitem__(self, i: int) -> Any:
        return np.full(256, i, dtype=np.int64), super().__getitem__(i)


class Stream:
    """Iterable, with a length."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.size))

    def __len__(self) -> int:
        return self.size


class Endless:
    """Iterable, without a length."""

    def __iter__(self) -> Iterator[int]:
        i = 0
        while True:
            yield i
            i += 1


class Failing(Numbers):
    """Sample `bad` raises."""

    def __init__(self, size: int, bad: int) -> None:
        super().__init__(size)
        self.bad = bad

    def __getitem__(self, i: int) -> int:
        if i == self.bad:
            raise LookupError(f"no sample {i}")
        return i


class Deadly(Numbers):
    """Sample `bad` kills its process: every time, or only as long as `once` does not exist."""

    def __init__(self, size: int, bad: int, once: Path | None = None) -> None:
        super().__init__(size)
        self.bad = bad
        self.once = once

    def __getitem__(self, i: int) -> int:
        if i == self.bad and (self.once is None or not self.once.exists()):
            if self.once is not None:
                self.once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return i


class Telling(Numbers):
    """Every sample that is loaded writes a byte into a named pipe."""

    def __init__(self, size: int, fifo: Path) -> None:
        super().__init__(size)
        self.fifo = fifo

    def __getitem__(self, i: int) -> int:
        with open(self.fifo, "wb", buffering=0) as fifo:
            fifo.write(b".")
        return i


class Uneven(Numbers):
    """Sample i is an array of its own length and type."""

    def __getitem__(self, i: int) -> Any:
        return np.full(i % 3 + 1, i + 0.75 if i % 2 else i, dtype=np.float64 if i % 2 else np.int32)


class Pair(NamedTuple):
    image: Any
    label: Any


@dataclass
class Named:
    number: Any
    name: Any
    tensor: Any


def two_halves(samples: list[int]) -> dict[str, Any]:
    """A collate function that gives a column of strings and an array."""
    return {"names": [f"sample {i}" for i in samples], "values": np.array(samples)}


@dataclass
class Padded:
    """A collate function that pads a micro-batch to three samples, and says how many it was given."""

    form: Any

    def __call__(self, samples: list[int]) -> Any:
        parts = {"image": np.array(samples + [-1] * (3 - len(samples))), "label": [f"{len(samples)} samples"]}
        return self.form(**parts)


class Informed(Numbers):
    """Sample i is (worker, workers, what its worker_init_fn said, i); -1 without a worker."""

    told = 0

    def __getitem__(self, i: int) -> Any:
        from torch.utils.data import get_worker_info

        info = get_worker_info()
        if info is not None:
            assert info.dataset is self
        place = (-1, -1) if info is None else (info.id, info.num_workers)
        return np.array([*place, self.told, i])


def tell(number: int) -> None:
    """A worker_init_fn that changes its worker's data set."""
    from torch.utils.data import get_worker_info

    info = get_worker_info()
    assert info is not None
    assert info.id == number
    info.dataset.told = number + 100


class Divided:
    """Iterable; `divide` takes its worker's part of it."""

    def __init__(self, size: int) -> None:
        self.start, self.stop = 0, size

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.stop))


def divide(number: int) -> None:
    from torch.utils.data import get_worker_info

    info = get_worker_info()
    assert info is not None
    data = info.dataset
    each = -(-(data.stop - data.start) // info.num_workers)
    data.start, data.stop = number * each, min(data.stop, (number + 1) * each)
