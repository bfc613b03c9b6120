"""Headrace's own Loader, and its DataLoader2 for graphs, with nothing set that a user would not set."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

from benchmarks.case import Dataset, Epochs, Start
from headrace import (
    DataLoader2,
    InProcessReadingService,
    IterableWrapper,
    Loader,
    MultiProcessingReadingService,
    Pipe,
)

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

    sources = True
    """Takes frames of any kind."""

    def columns(
        self, data: Any, *, size: int, workers: int, whole: bool, start: Start = "fork"
    ) -> AbstractContextManager[Epochs]:
        return self._loader(Pipe.of(data).shuffle().batch(size), workers, start)

    def parquet(self, paths: list[str], *, size: int, memory: int, rows: int) -> AbstractContextManager[Epochs]:
        return Loader(Pipe.parquet(paths, memory=memory).shuffle().batch(size), workers=2, kind="thread")

    def csv(self, paths: Sequence[str], parse: Any, *, size: int, workers: int) -> AbstractContextManager[Epochs]:
        """The tutorial's graph of DataPipes, in a DataLoader2."""
        graph = IterableWrapper(list(paths)).open_files(encoding="utf-8").parse_csv()
        graph = graph.shuffle().sharding_filter().map(parse).batch(size)
        service = MultiProcessingReadingService(num_workers=workers) if workers else InProcessReadingService()
        return DataLoader2(graph, reading_service=service)

    def _loader(self, pipe: Any, workers: int, start: Start) -> AbstractContextManager[Epochs]:
        if workers == 0:
            return Loader(pipe)
        return Loader(pipe, workers=workers, kind="process", start_method=METHOD[start])


SUBJECT = HeadraceLoader()
