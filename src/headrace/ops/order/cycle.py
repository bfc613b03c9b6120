"""Cycle and repeat: the whole input again and again, in a new order each time; or each sample several times."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from headrace.errors import BadOption
from headrace.op import Flat, Here, Indexed, InputCursor, Op, as_input, is_count
from headrace.ops.ahead import ahead_in
from headrace.ops.repeated import RepeatedInput

T = TypeVar("T")
FOREVER = 2**62


@dataclass(frozen=True, slots=True)
class Cycle(Op[T, T]):
    """The input `count` times; None means for ever."""

    count: int | None = None
    quiet = True
    hands_on = True
    accepts = is_count
    columnar = as_input

    def __post_init__(self) -> None:
        if self.count is not None and self.count < 0:
            raise BadOption(f"Expected non-negative count, got {self.count}")

    def flow(self, samples: InputCursor[T], here: Here) -> Iterator[T]:
        turn = here.note or 0
        while self.count is None or turn < self.count:
            empty = turn > 0 and here.emitted == 0
            for sample in samples:
                empty = False
                yield sample
            turn += 1
            if empty and self.count is None:
                return
            if self.count is None or turn < self.count:
                samples.again(turn)
                here.rest(turn)

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        (inner,) = inputs
        size = inner.length
        turns = 0 if size == 0 else FOREVER // size if self.count is None else self.count
        if turns <= 1:
            found = Indexed(size * turns, inner.get, inner.take)
            found.ahead = inner.ahead
            return found
        repeated = RepeatedInput(inner)
        length = size * turns if self.count is None else repeated.rounds.total(turns)
        found = Indexed(length, repeated.get, None if inner.take is None else repeated.take).placed_as(inner)
        # The parts stay: ranks that divide their number meet one class of remainders in every turn, if not always the
        # same. The units are those of one turn only.
        found.units, found.ahead = None, ahead_in(inputs, lambda position: [repeated.find(position)])
        return found

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return None if self.count is None or inputs[0] is None else self.count * inputs[0]


@dataclass(frozen=True, slots=True)
class Repeat(Flat[T, T]):
    """Each sample `times` times in a row."""

    times: int

    def __post_init__(self) -> None:
        if not isinstance(self.times, int) or self.times <= 1:
            raise BadOption(f"The number of repetition must be > 1, got {self.times}")

    def spread(self, sample: T) -> Iterator[T]:
        for _ in range(self.times):
            yield sample

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        (inner,) = inputs
        fetch, times = inner.get, self.times
        return Indexed(inner.length * times, lambda position: fetch(position // times))

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return None if inputs[0] is None else inputs[0] * self.times
