"""Sharding: the mark behind which work is divided among workers and ranks; and a share that is taken by hand.

What stands before the mark runs once and sees every sample; what stands after it runs in any worker. The mark changes
no sample: which rank gets which sample is computed in `plan`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.errors import BadOption
from headrace.op import Each, Here, Indexed, Op, as_input, indexed_input, is_count

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Sharding(Each[T, T]):
    """From here on, work is divided."""

    group: Any = None
    hands_on = True
    verb = "sharding_filter"
    columnar = as_input

    def apply(self, sample: T) -> T:
        return sample

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        return Indexed(inputs[0].length, inputs[0].get, inputs[0].take).placed_as(inputs[0])


@dataclass(frozen=True, slots=True)
class Shard(Op[T, T]):
    """The samples whose number leaves the rest `number` when divided by `count`."""

    count: int
    number: int
    quiet = True
    accepts = is_count

    def __post_init__(self) -> None:
        if not 0 <= self.number < self.count:
            raise BadOption(f"instance_id({self.number}) should be smaller than num_of_instances({self.count})")

    def flow(self, samples: Iterator[T], here: Here) -> Iterator[T]:
        position = here.note or 0
        indexed = indexed_input(samples)
        if indexed is not None:  # samples of other shards need not be read
            first = position + (self.number - position) % self.count
            for place in range(first, indexed.length, self.count):
                here.rest(place + 1)
                yield indexed.get(place)
            return
        for sample in samples:
            chosen = position % self.count == self.number
            position += 1
            if chosen:
                here.rest(position)
                yield sample

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        return inputs[0].every(self.count, self.number)

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return None if inputs[0] is None else len(range(self.number, inputs[0], self.count))
