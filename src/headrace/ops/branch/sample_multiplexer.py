"""Sample multiplexer: `mix` with a seed of its own."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.ops.branch.mix import Mix
from headrace.plan.seed import key

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SampleMux(Mix[T]):
    """The draws depend on `seed` and the epoch, not on the loader's seed; None: as in `mix`."""

    seed: int | None = None

    def flow(self, *inputs: Any) -> Iterator[T]:
        here = inputs[-1]
        if self.seed is not None:
            here.seed = key(self.seed, "multiplexer", here.epoch)
        return Mix.flow(self, *inputs)

    @classmethod
    def name(cls) -> str:
        return "sample_multiplexer"
