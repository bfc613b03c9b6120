"""Headrace's own Loader, with nothing set that a user would not set."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Literal

from benchmarks.case import Dataset, Epochs, Start
from headrace import Loader, Pipe

METHOD: dict[Start, Literal["fork", "spawn"] | None] = {"fork": "fork", "spawn": "spawn", "clean": None}


class HeadraceLoader:
    def batches(
        self, dataset: Dataset, *, size: int, workers: int, start: Start = "fork"
    ) -> AbstractContextManager[Epochs]:
        return self._loader(Pipe.of(dataset).batch(size).collate(), workers, start)

    def filtered(
        self, dataset: Dataset, keep: Callable[[Any], bool], *, size: int, workers: int
    ) -> AbstractContextManager[Epochs]:
        return self._loader(Pipe.of(dataset).filter(keep).batch(size).collate(), workers, "fork")

    def _loader(self, pipe: Any, workers: int, start: Start) -> AbstractContextManager[Epochs]:
        if workers == 0:
            return Loader(pipe)
        return Loader(pipe, workers=workers, kind="process", start_method=METHOD[start])


SUBJECT = HeadraceLoader()
