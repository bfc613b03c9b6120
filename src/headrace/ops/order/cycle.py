"""Cycle: the whole input again and again, in a new order each time."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from headrace.errors import BadOption
from headrace.op import Here, Indexed, InputCursor, Op, Positions, as_input, is_count
from headrace.plan.rounds import Rounds

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
            return Indexed(size * turns, inner.get, inner.take)
        opened = lru_cache(maxsize=2)(inner.again)
        rounds = Rounds(size, (lambda turn: opened(turn).length) if inner.varies else None)

        def get(position: int) -> T:
            turn, at = rounds.find(position)
            return opened(turn).get(at)  # type: ignore[no-any-return]

        def take(positions: Positions, names: tuple[str, ...] | None) -> Any:
            from headrace.tables.merge import merge

            numbers, at = rounds.find_all(positions)

            def taken(turn: int, places: Positions) -> Any:
                below: Any = opened(turn).take
                return below(at[places], names)

            return merge(numbers, taken)

        length = size * turns if self.count is None else rounds.total(turns)
        found = Indexed(length, get, None if inner.take is None else take).placed_as(inner)
        # Ranks that divide the number of parts meet one class of remainders in every turn, if not always the same.
        found.units = None
        return found

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return None if self.count is None or inputs[0] is None else self.count * inputs[0]
