"""Sources of file names.

`Files` is a fixed list: any worker can take any file of it. `ListedFiles` looks into a folder anew each epoch; that
look happens in one place, so a folder that changes meanwhile cannot make two workers disagree.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Any, cast

from headrace.op import Here, Source
from headrace.sources.extra import demand
from headrace.sources.listing import Masks, list_fsspec, walk


@dataclass(frozen=True, slots=True)
class Files(Source[str]):
    """These paths, in this order."""

    paths: tuple[str, ...]
    quiet = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "paths", tuple(map(os.fspath, self.paths)))

    def size(self) -> int:
        return len(self.paths)

    def get(self, position: int) -> str:
        return self.paths[position]

    def describe(self) -> str:
        few = ", ".join(map(repr, self.paths[:2]))
        return f"files({few}{f', ... {len(self.paths)} in all' if len(self.paths) > 2 else ''})"

    def identity(self) -> tuple[Any, ...]:
        # The folder is left out: a data set that was moved is still the same one.
        folder = len(os.path.dirname(_shared_start(self.paths)))
        names = "\0".join(p[folder:] for p in self.paths)
        return ("files", len(self.paths), blake2b(names.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest())


def _shared_start(paths: tuple[str, ...]) -> str:
    """What all paths begin with; URLs and relative paths may stand side by side."""
    low, high = min(paths, default=""), max(paths, default="")
    same = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    return low[:same]


@dataclass(frozen=True, slots=True)
class ListedFiles(Source[str]):
    """The files under `roots`, listed when an epoch starts."""

    roots: str | os.PathLike[str] | tuple[str | os.PathLike[str], ...] = "."
    masks: Masks = ""
    recursive: bool = False
    abspath: bool = False
    non_deterministic: bool = False
    known: int = -1
    """How many files there are, if the user says so."""
    quiet = True
    verb = "list_files"

    def __post_init__(self) -> None:
        roots = (self.roots,) if isinstance(self.roots, str | os.PathLike) else self.roots
        object.__setattr__(self, "roots", tuple(map(os.fspath, roots)))
        if not isinstance(self.masks, str):
            object.__setattr__(self, "masks", tuple(self.masks))

    def flow(self, here: Here) -> Iterator[str]:
        found = (
            path
            for root in cast(tuple[str, ...], self.roots)
            for path in walk(root, self.masks, self.recursive, self.abspath, self.non_deterministic)
        )
        yield from islice(found, here.emitted * here.strands + here.strand, None, here.strands)

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return self.known if self.known >= 0 else None


@dataclass(frozen=True, slots=True)
class FsspecFiles(Source[str]):
    """The files directly under `roots` on any file system that fsspec knows, listed when an epoch starts."""

    roots: str | tuple[str, ...]
    masks: Masks = ""
    kwargs: tuple[tuple[str, Any], ...] = ()
    quiet = True
    verb = "list_files_by_fsspec"

    def __post_init__(self) -> None:
        demand("remote", "fsspec")
        object.__setattr__(self, "roots", (self.roots,) if isinstance(self.roots, str) else tuple(self.roots))
        if not isinstance(self.masks, str):
            object.__setattr__(self, "masks", tuple(self.masks))

    def flow(self, here: Here) -> Iterator[str]:
        found = (path for root in self.roots for path in list_fsspec(root, self.masks, **dict(self.kwargs)))
        yield from islice(found, here.emitted * here.strands + here.strand, None, here.strands)
