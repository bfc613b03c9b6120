"""What a resume reads again: measured by check_op, said by explain()."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from headrace import Pipe
from headrace.op import Here, Op
from headrace.testing import check_op


@dataclass(frozen=True, slots=True)
class Sums(Op[int, int]):
    """The sum of everything so far: rests after every `rests` samples, or never."""

    rests: int

    def flow(self, samples: Iterator[int], here: Here) -> Iterator[int]:
        total = here.note or 0
        while group := list(islice(samples, self.rests)):
            for sample in group:
                total += sample
                yield total
            here.rest(total)


@dataclass(frozen=True, slots=True)
class Never(Op[int, int]):
    """The same without a rest."""

    def flow(self, samples: Iterator[int], here: Here) -> Iterator[int]:
        total = 0
        for sample in samples:
            total += sample
            yield total


def cost(pipe: Pipe[Any]) -> str:
    (line,) = (line for line in pipe.explain().splitlines() if "sums(" in line or "never(" in line)
    return line.partition("resume: ")[2]


def test_an_op_that_rests_reads_again_what_came_since() -> None:
    # The four of a group, and the one that the source had at hand.
    assert 4 <= check_op(Sums(4), range(20)) <= 5
    assert check_op(Sums(1), range(20)) <= 2
    assert cost(Pipe.of(range(20)).then(Sums(4))).startswith("what it read since it last called here.rest()")


def test_an_op_that_never_rests_reads_again_everything() -> None:
    assert check_op(Never(), range(20)) == 19
    assert cost(Pipe.of(range(20)).then(Never())) == "everything before the position, in this epoch"
