"""LitData: the data set as local chunks, in its StreamingDataLoader."""

# mypy: disable-error-code="import-not-found, import-untyped"

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from litdata import StreamingDataLoader, StreamingDataset
from litdata.streaming.writer import BinaryWriter

from benchmarks.case import Dataset, Start
from benchmarks.media import FileSet, Job
from benchmarks.stored import Files, Storage
from benchmarks.subjects.torch_loader import METHOD, Running


def write(folder: str, storage: Storage) -> None:
    writer = BinaryWriter(folder, chunk_bytes="64MB")
    for index in range(len(storage)):
        writer[index] = storage.fields(index)
    writer.done()
    writer.merge()


class LitData:
    def __init__(self) -> None:
        self.files = Files(write)

    def batches(self, dataset: Dataset, *, size: int, workers: int, start: Start = "fork") -> Any:
        return self._running(dataset, size, workers, start, shuffle=False, state=None)

    def media(self, job: Job, *, size: int, workers: int) -> Any:
        """Chunks of its own, written before: its users convert a folder once."""
        return self._running(FileSet(job), size, workers, "fork", shuffle=True, state=None)

    def resumable(self, dataset: Dataset, *, size: int, workers: int, state: Any = None) -> Any:
        return self._running(dataset, size, workers, "fork", shuffle=True, state=state)

    @contextmanager
    def _running(
        self, dataset: Dataset, size: int, workers: int, start: Start, *, shuffle: bool, state: Any
    ) -> Iterator[Running]:
        folder, storage = self.files.of(dataset)
        data = StreamingDataset(folder, shuffle=shuffle, seed=7, transform=storage.sample)
        options: dict[str, Any] = {}
        if workers:
            options = {"multiprocessing_context": METHOD[start], "persistent_workers": True}
        loader = StreamingDataLoader(data, batch_size=size, num_workers=workers, **options)
        if state is not None:
            loader.load_state_dict(state)
        running = Running(loader)
        try:
            yield running
        finally:
            running.close()


SUBJECT = LitData()
