"""Release 0.1 of Headrace, its last commit, for what 0.2 does otherwise."""

import io
import subprocess
import sys
import tarfile
from contextlib import AbstractContextManager
from glob import glob
from typing import Any

from benchmarks.case import Start
from benchmarks.environments import FOLDER, ROOT
from benchmarks.tarfiles import FromDict
from benchmarks.tarfiles import decode as decode_tar

COMMIT = "c7fab3e"
HOME = FOLDER / "release-0.1"
if not (HOME / "src").is_dir():
    archive = subprocess.run(["git", "archive", COMMIT, "src"], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as file:
        file.extractall(HOME, filter="data")
sys.path[:] = [str(HOME / "src"), *(path for path in sys.path if path != str(ROOT / "src"))]
for loaded in [name for name in sys.modules if name.partition(".")[0] == "headrace"]:
    del sys.modules[loaded]
import headrace  # noqa: E402
from headrace import Loader, Pipe  # noqa: E402

assert str(HOME) in str(headrace.__file__)


class Release01:
    def columns(
        self, data: Any, *, size: int, workers: int, whole: bool, start: Start = "fork"
    ) -> AbstractContextManager[Any]:
        return Loader(Pipe.of(data).shuffle().batch(size), workers=workers, kind="process", start_method="fork")

    def parquet(self, paths: list[str], *, size: int, memory: int, rows: int) -> AbstractContextManager[Any]:
        # Its order followed from the memory that there was: as many row groups stood open as fitted.
        return Loader(Pipe.parquet(paths, memory=memory).shuffle().batch(size), workers=2, kind="thread")

    def stored(self, name: str, path: str, *, size: int, workers: int) -> AbstractContextManager[Any]:
        assert name == "tar"
        pipe = Pipe.shards(sorted(glob(path))).map(FromDict(decode_tar)).batch(size).collate()
        return Loader(pipe, workers=workers, kind="process", start_method="fork", strands=workers)


SUBJECT = Release01()
