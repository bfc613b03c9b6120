"""Datasets for the tests of SwiftLoader; light to import, since every worker does so."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from headrace.doors.swift.loader import SwiftLoader

DEADLINE = 20.0


class Numbers:
    """Sample i is i."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return index


class Pairs(Numbers):
    """Sample i is (i, the process that read it)."""

    def __getitem__(self, index: int) -> tuple[int, int]:
        return index, os.getpid()


class Built(Numbers):
    """Leaves a line in a file whenever it is built: the process that did it."""

    def __init__(self, count: int, file: str) -> None:
        super().__init__(count)
        note(file, os.getpid())


class Gated(Numbers):
    """Notes each sample in a file before it is read; sample `held` is not read until the gate exists."""

    def __init__(self, count: int, file: str, gate: str, held: int = -1) -> None:
        super().__init__(count)
        self.file, self.gate, self.held = file, gate, held

    def __getitem__(self, index: int) -> int:
        note(self.file, index)
        if index == self.held:
            wait_for(lambda: os.path.exists(self.gate))
        return index


class Failing(Numbers):
    """Sample `bad` raises."""

    def __init__(self, count: int, bad: int, error: type[BaseException] = ValueError) -> None:
        super().__init__(count)
        self.bad, self.error = bad, error

    def __getitem__(self, index: int) -> int:
        if index == self.bad:
            raise self.error(f"sample {index} is bad")
        return index


class Killing(Numbers):
    """Sample `bad` kills its worker: once, if a file for the mark is given, else each time."""

    def __init__(self, count: int, bad: int, mark: str | None = None) -> None:
        super().__init__(count)
        self.bad, self.mark = bad, mark

    def __getitem__(self, index: int) -> int:
        if index == self.bad and not (self.mark and os.path.exists(self.mark)):
            if self.mark:
                Path(self.mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return index


class Unbuildable(Numbers):
    def __init__(self, count: int, how: str = "raise") -> None:
        if how == "exit":
            os._exit(3)
        raise OSError("there is no such data")


class Changing(Numbers):
    """Has another length in each process."""

    def __init__(self) -> None:
        super().__init__(os.getpid())


class Sized(Numbers):
    """Sample i is an array of `sizes[i]` bytes."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__(len(sizes))
        self.sizes = sizes

    def __getitem__(self, index: int) -> Any:
        return np.full(self.sizes[index], index % 251, np.uint8)


class Samples(Numbers):
    """Samples given by hand."""

    def __init__(self, samples: list[Any]) -> None:
        super().__init__(len(samples))
        self.samples = samples

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]


class Random(Numbers):
    """Draws from every generator that a dataset may use."""

    def __getitem__(self, index: int) -> tuple[float, float, float, int]:
        import random

        import headrace

        return random.random(), float(np.random.rand()), float(headrace.rng().random()), index


def note(file: str, what: Any) -> None:
    with open(file, "a") as lines:
        lines.write(f"{what}\n")


def noted(file: str | Path) -> list[int]:
    return [int(line) for line in Path(file).read_text().splitlines()] if os.path.exists(file) else []


def wait_for(happened: Any, seconds: float = DEADLINE) -> bool:
    """Whether it happened in time."""
    until = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


def swift(dataset: type = Numbers, kwargs: dict[str, Any] | int = 20, **options: Any) -> SwiftLoader:
    """A loader with the arguments that a test does not care about filled in; not started."""
    given = {"count": kwargs} if isinstance(kwargs, int) else kwargs
    options = {"batch_size": 3, "nb_consumer": 1, "worker_per_consumer": 2, "seed": 7, "validate": False, **options}
    return SwiftLoader(dataset_class=dataset, dataset_kwargs=given, **options)


def batches(loader: SwiftLoader, epochs: int = 1) -> list[list[list[int]]]:
    """The batches of some epochs, as lists."""
    return [[batch.tolist() for batch in loader] for _ in range(epochs)]


def flat(epoch: list[list[int]]) -> list[int]:
    return [sample for batch in epoch for sample in batch]
