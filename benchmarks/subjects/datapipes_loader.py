"""TorchData's DataLoader2 and DataPipes: torchdata 0.9.0, the last release that has them."""

# mypy: disable-error-code="import-not-found, import-untyped"

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch.utils.data import default_collate
from torchdata.dataloader2 import DataLoader2, InProcessReadingService, MultiProcessingReadingService
from torchdata.datapipes.iter import IterableWrapper

from benchmarks import graphs
from benchmarks.case import Dataset, Epochs, Start
from benchmarks.tarfiles import Decode, FromDict

METHOD: dict[Start, str] = {"fork": "fork", "spawn": "spawn", "clean": "spawn"}


class DataPipes:
    def graph(self, name: str, paths: Sequence[str], body: Callable[[Any], Any], *, size: int, workers: int) -> Any:
        return running(graphs.build(name, IterableWrapper, paths, body, size), workers)

    def batches(self, dataset: Dataset, *, size: int, workers: int, start: Start = "fork") -> Any:
        pipe = IterableWrapper(range(len(dataset))).sharding_filter().map(dataset.__getitem__)
        return running(pipe.batch(size).collate(default_collate), workers, start)

    def tar(self, paths: Sequence[str], decode: Decode, *, size: int, workers: int) -> Any:
        pipe = IterableWrapper(list(paths)).sharding_filter().open_files(mode="b").load_from_tar().webdataset()
        return running(pipe.map(FromDict(decode)).batch(size).collate(default_collate), workers)


@contextmanager
def running(pipe: Any, workers: int, start: Start = "fork") -> Iterator[Epochs]:
    service: Any = InProcessReadingService()
    if workers:
        service = MultiProcessingReadingService(num_workers=workers, multiprocessing_context=METHOD[start])
    loader = DataLoader2(pipe, reading_service=service)
    try:
        yield loader
    finally:
        loader.shutdown()


SUBJECT = DataPipes()
