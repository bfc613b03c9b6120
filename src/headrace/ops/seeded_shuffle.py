"""Seeded shuffle: a shuffle that was told its own seed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.op import Here, Indexed
from headrace.ops.shuffle import Shuffle
from headrace.plan.seed import key

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SeededShuffle(Shuffle[T]):
    """The order depends on `seed` and the epoch, not on the loader's seed."""

    seed: int = 0

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        here.seed = key(self.seed, "shuffle", here.epoch)
        return Shuffle.index(self, inputs, here)

    def flow(self, *inputs: Any) -> Iterator[T]:
        here = inputs[-1]
        here.seed = key(self.seed, "shuffle", here.epoch)
        return Shuffle.flow(self, *inputs)

    @classmethod
    def name(cls) -> str:
        return "shuffle"
