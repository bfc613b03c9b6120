"""Files by fsspec: list, open and save on any file system that fsspec knows (extra `remote`)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from headrace.errors import BadOption
from headrace.op import Flat
from headrace.ops.files.per_file import EachFile, Keywords
from headrace.ops.files.save_to_disk import write_content, writing
from headrace.sources.by_fsspec import filesystem, open_fsspec
from headrace.sources.extra import require
from headrace.sources.listing import Masks, list_fsspec
from headrace.sources.open import as_text
from headrace.sources.stream import StreamWrapper, reopenable


@dataclass(frozen=True, slots=True)
class ListFilesByFsspec(Flat[str, str]):
    """The files directly under each root that comes in; a root that is a file is its own only file."""

    masks: Masks = ""
    kwargs: Keywords = ()

    def __post_init__(self) -> None:
        require("remote", "fsspec")

    def spread(self, sample: str) -> Iterator[str]:
        yield from list_fsspec(sample, self.masks, **dict(self.kwargs))


@dataclass(frozen=True, slots=True)
class OpenFilesByFsspec(EachFile[tuple[str, StreamWrapper]]):
    """Each URL as `(url, stream)`; `kwargs` make the file system, `kwargs_for_open` open the file."""

    mode: str = "r"
    kwargs_for_open: Keywords = ()
    kwargs: Keywords = ()

    def __post_init__(self) -> None:
        require("remote", "fsspec")
        if "+" in self.mode:
            raise BadOption(f"mode {self.mode!r} reads and writes; open the file for one of the two")
        if set(self.mode) & set("wax"):
            raise BadOption(f"Invalid mode {self.mode}: open_files_by_fsspec reads")

    def apply(self, sample: str) -> tuple[str, StreamWrapper]:
        return sample, reopenable(partial(_open, sample, self.mode, self.kwargs_for_open, self.kwargs), sample)


def _open(url: str, mode: str, opening: Keywords, options: Keywords) -> Any:
    opened = dict(opening)
    encoding = opened.pop("encoding", None)
    return as_text(open_fsspec(url, opened, **dict(options)), mode, encoding)


@dataclass(frozen=True, slots=True)
class SaveByFsspec(EachFile[str]):
    """`(meta, data)` written to `filepath_fn(meta)`, a URL, which is handed on."""

    mode: str = "w"
    filepath_fn: Callable[[Any], str] | None = None
    kwargs_for_open: Keywords = ()
    kwargs: Keywords = ()
    user = True

    def __post_init__(self) -> None:
        require("remote", "fsspec")
        object.__setattr__(self, "mode", writing(self.mode))

    def apply(self, sample: tuple[str, Any]) -> str:
        meta, data = sample
        url = meta if self.filepath_fn is None else self.filepath_fn(meta)
        files, path = filesystem(url, **dict(self.kwargs))
        files.makedirs(files._parent(path), exist_ok=True)
        with files.open(path, self.mode, **dict(self.kwargs_for_open)) as file:
            write_content(file, data)
        return url
