"""Strands: one stream read as several. A source must say that it divides itself among them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from headrace import Loader, Pipe
from headrace.errors import BadOption
from headrace.op import Here, Source


@dataclass(frozen=True, slots=True)
class Lines(Source[int]):
    """Gives everything to everyone."""

    def flow(self, here: Here) -> Iterator[int]:
        yield from range(9)


@dataclass(frozen=True, slots=True)
class DividedLines(Source[int]):
    divides = True

    def flow(self, here: Here) -> Iterator[int]:
        yield from range(here.strand, 9, here.strands)


@dataclass(frozen=True, slots=True)
class Rows(Source[int]):
    """Has no `flow` of its own, and no random access behind the op that follows."""

    def size(self) -> int:
        return 9

    def get(self, position: int) -> int:
        return position


def streamed(source: Source[int]) -> Pipe[Any]:
    return Pipe(source).shuffle(buffer_size=2).map(str)


def test_a_source_of_ones_own_that_does_not_divide_itself_is_not_read_in_strands() -> None:
    with pytest.raises(BadOption, match=r"lines cannot be read in several strands: leave strands= out, or .*divides"):
        Loader(streamed(Lines()), strands=3)
    with Loader(streamed(Lines()), strands=1) as loader:
        assert sorted(loader) == [str(i) for i in range(9)]


@pytest.mark.parametrize("source", [DividedLines(), Rows()])
def test_one_that_says_so_gives_each_sample_once(source: Source[int]) -> None:
    with Loader(streamed(source), strands=3) as loader:
        assert sorted(loader) == [str(i) for i in range(9)]
