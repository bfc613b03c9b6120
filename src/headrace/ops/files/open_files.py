"""Open files: paths and URLs as streams."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.errors import BadOption
from headrace.op import Here, Indexed, Upcoming
from headrace.ops.files.per_file import EachFile
from headrace.sources.cache import DiskCache
from headrace.sources.open import begin, open_stream
from headrace.sources.stream import StreamWrapper

LOOK = 32
"""Files that are opened before they are asked for, where they are remote."""
MODES = ("b", "t", "rb", "rt", "r")


@dataclass(frozen=True, slots=True)
class OpenFiles(EachFile[tuple[str, StreamWrapper]]):
    """Each path as `(path, stream)`; text is UTF-8 unless `encoding` says so. Remote files go through `cache`."""

    mode: str = "r"
    encoding: str | None = None
    known: int = -1
    cache: DiskCache | None = None

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise BadOption(f"Invalid mode {self.mode}: use one of {', '.join(MODES)}")
        if "b" in self.mode and self.encoding is not None:
            raise BadOption("binary mode doesn't take an encoding argument")

    def apply(self, sample: object) -> tuple[str, StreamWrapper]:
        if not isinstance(sample, str | os.PathLike):
            raise TypeError(f"Expected string type for pathname, but got {type(sample)}")
        mode = self.mode if self.mode.startswith("r") else f"r{self.mode}"
        return os.fspath(sample), open_stream(sample, mode, self.encoding, self.cache)

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        found, (inner,) = EachFile.index(self, inputs, here), inputs
        if found is not None and self.cache is None:

            def begun(positions: Sequence[int]) -> None:
                for position in positions:
                    begin(inner.get(position))

            found.ahead = Upcoming(begun, begun, LOOK)
        return found

    def identity(self) -> tuple[Any, ...]:
        return ("open_files",)  # how a file is opened changes neither order nor number of the samples
