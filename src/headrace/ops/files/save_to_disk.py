"""Save to disk: write content into files, and emit their paths.

A file appears under its name only when it is complete, and a killed writer leaves nothing (`sources.atomic`). Writing
it again, after a resume or in another worker, gives the same file.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from shutil import copyfileobj
from typing import IO, Any

from headrace.errors import BadOption
from headrace.ops.files.per_file import EachFile
from headrace.sources.atomic import atomic_write


@dataclass(frozen=True, slots=True)
class SaveToDisk(EachFile[str]):
    """`(path, data)` written to `filepath_fn(path)`; data is bytes, text or a stream.

    With `folder`, every path is taken inside it, and one that leads out of it is refused.
    """

    mode: str = "w"
    filepath_fn: Callable[[Any], str] | None = None
    folder: str | None = None
    user = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "mode", writing(self.mode))
        if self.folder is not None:
            object.__setattr__(self, "folder", os.fspath(self.folder))

    def apply(self, sample: tuple[Any, Any]) -> str:
        meta, data = sample
        path = os.fspath(meta if self.filepath_fn is None else self.filepath_fn(meta))
        if self.folder is not None:
            path = inside(self.folder, path)
        write_file(path, data, self.mode)
        return path


def writing(mode: str) -> str:
    """A mode for writing a whole file: `b` means `wb`."""
    full = mode if "w" in mode else f"w{mode}"
    if sorted(full) not in (["w"], ["b", "w"], ["t", "w"]):
        raise BadOption(f"Invalid mode {mode}: use one of w, wb, wt, b, t")
    return full


def inside(folder: str, path: str) -> str:
    """`path` taken inside `folder`, symbolic links followed; refused if it leads out."""
    full = os.path.join(folder, path.lstrip("/") if os.path.isabs(path) else path)
    root = os.path.realpath(folder)
    if os.path.commonpath((root, os.path.realpath(full))) != root:
        raise ValueError(f"{path!r} lies outside of the folder {folder!r}: refused")
    return os.path.normpath(full)


def write_file(path: str, data: Any, mode: str) -> None:
    """Write the content into a file that gets its name only when it is complete."""
    with atomic_write(path, mode) as file:
        write_content(file, data)


def write_content(file: IO[Any], data: Any) -> None:
    """Write bytes, text, or all that a stream holds, which is closed then."""
    if hasattr(data, "read"):
        try:
            copyfileobj(data, file, 1 << 20)
        finally:
            data.close()
    else:
        file.write(data)
