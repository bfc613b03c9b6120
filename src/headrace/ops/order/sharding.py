"""Sharding: the mark from which on work is divided among workers and ranks.

What stands before the mark runs once and sees everything; what stands after it runs wherever there is room. The mark
changes no sample: which rank gets which sample is the plan's arithmetic.
"""

from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.op import Each, Here, Indexed

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Sharding(Each[T, T]):
    """From here on, work is divided."""

    group: Any = None
    hands_on = True
    verb = "sharding_filter"

    def apply(self, sample: T) -> T:
        return sample

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        return Indexed(inputs[0].length, inputs[0].get, inputs[0].take).placed_as(inputs[0])

    def columnar(self, inputs: tuple[bool, ...]) -> bool:
        return inputs[0]
