"""Open files: paths and URLs as streams."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.errors import BadOption
from headrace.op import Here, indexed_input
from headrace.ops.files.per_file import EachFile
from headrace.sources.cache import DiskCache
from headrace.sources.open import begin, open_stream
from headrace.sources.stream import StreamWrapper

LOOK = 16
"""Remote files that are opened before their turn."""
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

    def flow(self, samples: Iterator[Any], here: Here) -> Iterator[tuple[str, StreamWrapper]]:
        return EachFile.flow(self, self._looking(samples, here), here)

    def _looking(self, samples: Iterator[Any], here: Here) -> Iterator[Any]:
        """The same paths; those that come next are opened meanwhile."""
        known = indexed_input(samples) if here.strands == 1 else None
        begun = here.emitted if here.note is None else here.note
        for number, sample in enumerate(samples, begun):
            while known is not None and known.light and begun < min(number + LOOK, known.length):
                self.soon(known.get(begun))
                begun += 1
            yield sample

    def soon(self, sample: object) -> None:
        if self.cache is None and isinstance(sample, str | os.PathLike):
            begin(sample)

    def identity(self) -> tuple[Any, ...]:
        return ("open_files",)  # how a file is opened changes neither order nor number of the samples
