"""Release 0.1 of Headrace: what 0.2 does otherwise, and whether anything has become slower."""

# isort: off
import benchmarks.release01  # noqa: F401

# isort: on
from collections.abc import Sequence
from contextlib import AbstractContextManager
from glob import glob
from typing import Any

from benchmarks.subjects.headrace_loader import HeadraceLoader
from benchmarks.tarfiles import Decode, FromDict
from benchmarks.tarfiles import decode as decode_tar
from headrace import Loader, Pipe


class Release01(HeadraceLoader):
    def parquet(self, paths: list[str], *, size: int, memory: int, rows: int) -> AbstractContextManager[Any]:
        # Its order followed from the memory that there was: as many row groups stood open as fitted.
        return Loader(Pipe.parquet(paths, memory=memory).shuffle().batch(size), workers=2, kind="thread")

    def tar(self, paths: Sequence[str], decode: Decode, *, size: int, workers: int) -> AbstractContextManager[Any]:
        pipe = _shards(paths, decode, size)
        return Loader(pipe, workers=workers, kind="process", start_method="fork", strands=workers)

    def stored(self, name: str, path: str, *, size: int, workers: int) -> AbstractContextManager[Any]:
        assert name == "tar"
        return self.tar(sorted(glob(path)), decode_tar, size=size, workers=workers)

    def _stored(self, name: str, path: str, size: int) -> Any:
        return _shards(sorted(glob(path)), decode_tar, size)


def _shards(paths: Sequence[str], decode: Decode, size: int) -> Any:
    return Pipe.shards(list(paths)).map(FromDict(decode)).batch(size).collate()


SUBJECT = Release01()
