"""Lists of files: each folder as the files in it, each name with ranges as all the names it stands for."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.op import Flat
from headrace.sources.listing import Masks, expand_ranges, walk


@dataclass(frozen=True, slots=True)
class ListFiles(Flat[str, str]):
    """Every file of each root that comes in."""

    masks: Masks = ""
    recursive: bool = False
    abspath: bool = False
    non_deterministic: bool = False
    known: int = -1

    def __post_init__(self) -> None:
        if not isinstance(self.masks, str):
            object.__setattr__(self, "masks", tuple(self.masks))

    def spread(self, sample: str) -> Iterator[str]:
        yield from walk(os.fspath(sample), self.masks, self.recursive, self.abspath, self.non_deterministic)

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return self.known if self.known >= 0 else None


@dataclass(frozen=True, slots=True)
class ShardExpand(Flat[str, str]):
    """`x-{000..009}` as ten names."""

    def spread(self, sample: str) -> Iterator[str]:
        yield from expand_ranges(sample)
