"""Ray Data: blocks of rows, made by tasks on two cores, taken by `iter_batches`; an epoch is one execution.

Frames and files are shuffled by the local shuffle that its guide recommends for training. Data sets of objects become a
range of positions and a `map_batches` that fetches them.
"""

# mypy: disable-error-code="import-not-found, import-untyped"

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray

from benchmarks.case import Dataset, Start
from benchmarks.collate import stack
from benchmarks.tarfiles import Decode, FromDict

CORES = 2


class Epoch:
    def __init__(self, data: Any, size: int, make: Any = None, **options: Any) -> None:
        self.data = data
        self.make = make or (lambda batch: batch)
        self.options = {"batch_size": size, "batch_format": "numpy", "prefetch_batches": 4, **options}

    def __iter__(self) -> Iterator[Any]:
        return map(self.make, self.data.iter_batches(**self.options))


class RayData:
    @contextmanager
    def batches(self, dataset: Dataset, *, size: int, workers: int, start: Start = "fork") -> Iterator[Any]:
        with cluster(max(workers, 1)):
            ray.data.DataContext.get_current().execution_options.preserve_order = True
            fetch = FetchColumns(dataset)
            data = ray.data.range(len(dataset)).map_batches(fetch, batch_size=size)
            yield Epoch(data, size, fetch.batch)

    @contextmanager
    def columns(self, data: Any, *, size: int, workers: int, whole: bool, start: Start = "fork") -> Iterator[Any]:
        import pyarrow

        with cluster(workers, 4_000_000_000):
            table = pyarrow.table(data)
            pieces = [table.slice(at, 100_000) for at in range(0, len(table), 100_000)]
            frame = ray.data.from_arrow(pieces).randomize_block_order(seed=1)
            yield Epoch(frame, size, local_shuffle_buffer_size=100_000)

    @contextmanager
    def parquet(self, paths: list[str], *, size: int, memory: int, rows: int) -> Iterator[Any]:
        with cluster(CORES, max(memory, 80_000_000)):
            data = ray.data.read_parquet(paths, shuffle="files")
            yield Epoch(data, size, local_shuffle_buffer_size=max(rows, size))

    @contextmanager
    def tar(self, paths: Sequence[str], decode: Decode, *, size: int, workers: int) -> Iterator[Any]:
        with cluster(workers):
            data = ray.data.read_webdataset(list(paths), decoder=False).map(Decoded(decode))
            yield Epoch(data, size, lambda batch: (batch["x0"], batch["x1"]))


class FetchColumns:
    """Samples by position, as the columns of a block."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        first = dataset[0]
        self.many = isinstance(first, tuple)

    def __call__(self, block: Any) -> Any:
        found = stack([self.dataset[int(position)] for position in block["id"]])
        return {f"x{number}": column for number, column in enumerate(found if self.many else (found,))}

    def batch(self, block: Any) -> Any:
        return tuple(block[f"x{number}"] for number in range(len(block))) if self.many else block["x0"]


class Decoded:
    def __init__(self, decode: Decode) -> None:
        self.decode = FromDict(decode)

    def __call__(self, row: Any) -> Any:
        image, label = self.decode(row)
        return {"x0": image, "x1": label}


@contextmanager
def cluster(cores: int, store: int = 1_000_000_000) -> Iterator[None]:
    ray.init("local", num_cpus=cores, object_store_memory=store, include_dashboard=False, log_to_driver=False)
    try:
        ray.data.DataContext.get_current().enable_progress_bars = False
        yield
    finally:
        ray.shutdown()


SUBJECT = RayData()
