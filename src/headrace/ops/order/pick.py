"""Pick: the samples at chosen positions, which are given or drawn by weight."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.errors import BadOption, BadPipe
from headrace.op import Here, Indexed, Op, as_input, indexed_input, place
from headrace.ops.ahead import ahead_of
from headrace.plan.seed import key

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Pick(Op[T, T]):
    """The samples `indices`, positions or keys, in their order."""

    indices: Any
    quiet = True
    hands_on = True
    verb = "to_iter_datapipe"

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        (inner,) = inputs
        fetch, chosen = inner.get, self.indices
        found = Indexed(len(chosen), lambda position: fetch(chosen[position]))
        found.ahead = ahead_of(inner, lambda positions: [chosen[position] for position in positions])
        return found

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return len(self.indices)

    def flow(self, source: Iterator[T], here: Here) -> Iterator[T]:
        trouble = "to_iter_datapipe(indices) needs random access: put it before any filter, flatmap or stream"
        return _by_position(self, source, here, trouble)


@dataclass(frozen=True, slots=True)
class WeightedDraw(Op[T, T]):
    """`count` samples, with replacement; sample i comes with a chance in proportion to `weights[i]`."""

    weights: tuple[float, ...]
    count: int
    quiet = True
    hands_on = True
    verb = "weighted"
    columnar = as_input

    def __post_init__(self) -> None:
        if not self.weights or any(not w >= 0 for w in self.weights) or sum(self.weights) <= 0:
            raise BadOption("weighted(weights) needs numbers >= 0 with a positive sum")
        if self.count < 0:
            raise BadOption(f"weighted(count=) needs a number >= 0, not {self.count}")

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        from headrace.plan.order import Chunked, Weighted

        (inner,) = inputs
        if inner.length != len(self.weights):
            raise BadPipe(f"weighted() got {len(self.weights)} weights for {inner.length} samples")
        order = Weighted(self.weights, self.count, key(here.seed, "weighted"))
        at, fetch, take = Chunked(order).at, inner.get, inner.take
        many = None if take is None else lambda positions, names: take(order(positions), names)
        found = Indexed(self.count, lambda position: fetch(at(position)), many)
        found.ahead = ahead_of(inner, lambda positions: map(at, positions))
        return found

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return self.count

    def flow(self, source: Iterator[T], here: Here) -> Iterator[T]:
        trouble = "weighted() needs random access: put it before any filter, flatmap or stream"
        return _by_position(self, source, here, trouble)


def _by_position(op: Op[T, T], source: Iterator[T], here: Here, trouble: str) -> Iterator[T]:
    indexed = indexed_input(source)
    if indexed is None:
        raise BadPipe(trouble)
    chosen = op.index((indexed,), here)
    assert chosen is not None
    for position in range(here.emitted, chosen.length):
        place.at(here, position)
        yield chosen.get(position)
