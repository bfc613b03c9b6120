"""WebDataset in torch's DataLoader, batched in the workers, as its documentation has it."""

# mypy: disable-error-code="import-not-found, import-untyped"

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from glob import glob
from pathlib import Path
from typing import Any

import webdataset
from torch.utils.data import DataLoader

from benchmarks.media import Job
from benchmarks.subjects.torch_loader import Running
from benchmarks.tarfiles import Decode, FromDict, decode, pack

SHARDS = 8


class FromMembers:
    """`(path, array)` out of the members of a sample."""

    def __init__(self, job: Job) -> None:
        self.sample = job.sample

    def __call__(self, members: dict[str, Any]) -> tuple[str, Any]:
        return members["path"].decode(), self.sample(members["data"])


class WebDataset:
    def tar(self, paths: Sequence[str], decode: Decode, *, size: int, workers: int) -> Any:
        data = webdataset.WebDataset(list(paths), shardshuffle=False).map(FromDict(decode)).batched(size)
        loader: Any = DataLoader(data, batch_size=None, num_workers=workers, persistent_workers=True)
        return closing(Running(loader))

    @contextmanager
    def media(self, job: Job, *, size: int, workers: int) -> Iterator[Any]:
        """Tar shards, written before: its users convert a folder once. Shards and a buffer are shuffled."""
        with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
            paths = pack(Path(folder), job.paths, SHARDS)
            data = webdataset.WebDataset(paths, shardshuffle=SHARDS).shuffle(1000).map(FromMembers(job)).batched(size)
            running = Running(DataLoader(data, batch_size=None, num_workers=workers, persistent_workers=True))
            try:
                yield running
            finally:
                running.close()

    def stored(self, name: str, path: str, *, size: int, workers: int) -> Any:
        assert name == "tar"
        return self.tar(sorted(glob(path)), decode, size=size, workers=workers)


SUBJECT = WebDataset()
