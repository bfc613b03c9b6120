"""Sharding: the mark from which on work is divided among workers and ranks.

What stands before the mark runs once and sees everything; what stands after it runs wherever there is room. The mark
changes no sample: which rank gets which sample is the plan's arithmetic.
"""

from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.op import Each

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Sharding(Each[T, T]):
    """From here on, work is divided."""

    group: Any = None

    def apply(self, sample: T) -> T:
        return sample

    @classmethod
    def name(cls) -> str:
        return "sharding_filter"
