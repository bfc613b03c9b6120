"""SPDL: one pipeline for all epochs, whose threads fetch and collate; for tar files, its own parser."""

# mypy: disable-error-code="import-not-found, import-untyped"

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from spdl.io import iter_tarfile
from spdl.pipeline import PipelineBuilder

from benchmarks.case import Dataset, Epochs, Start
from benchmarks.collate import Fetch, Positions, stack
from benchmarks.tarfiles import Decode


class Spdl:
    def batches(self, dataset: Dataset, *, size: int, workers: int, start: Start = "fork") -> Any:
        builder: Any = PipelineBuilder().add_source(Positions(len(dataset), size), continuous=True)
        builder.pipe(Fetch(dataset), concurrency=max(1, workers), output_order="input")
        return running(builder, workers)

    def tar(self, paths: Sequence[str], decode: Decode, *, size: int, workers: int) -> Any:
        builder: Any = PipelineBuilder().add_source(list(paths), continuous=True)
        builder.pipe(Samples(decode), concurrency=workers).aggregate(size).pipe(stack)
        return running(builder, workers + 1)


class Samples:
    """The samples of one tar file."""

    def __init__(self, decode: Decode) -> None:
        self.decode = decode

    def __call__(self, path: str) -> Iterator[Any]:
        with open(path, "rb") as file:
            content = b""
            for name, value in iter_tarfile(file):
                if name.endswith(".bin"):
                    content = value
                else:
                    yield self.decode(content, value)


@contextmanager
def running(builder: Any, threads: int) -> Iterator[Epochs]:
    pipeline = builder.add_sink(8).build(num_threads=max(1, threads))
    with pipeline.auto_stop():
        yield pipeline


SUBJECT = Spdl()
