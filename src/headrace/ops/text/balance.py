"""Balance: batches cut as global steps, each dealt to the ranks by cost.

A step is `rows` samples, or as many as `tokens` allow, of like lengths. Which samples it holds does not depend on the
number of ranks. Every rank computes the same deal from the lengths alone (`plan.balance`), without a message: the
dearest sample goes first, to the rank with the least cost so far. So no rank waits long for another, and none is
without samples. A rank reads the samples that it is dealt, and of all others the lengths
(4 bytes each in stored tokens).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from headrace.brief import arguments, brief
from headrace.errors import BadPipe
from headrace.op import Here, Indexed, InputCursor, place
from headrace.ops.shape.batch import Batch
from headrace.plan.balance import StepPlan
from headrace.plan.order import Ints
from headrace.plan.seed import key

T = TypeVar("T")
Cost = Callable[[Ints], "NDArray[Any]"]


@dataclass(frozen=True, slots=True)
class Balance(Batch[T]):
    """Global steps, dealt to ranks. (To the engine it is a batch whose samples are chosen by the plan.)"""

    plan: StepPlan = field(default_factory=lambda: StepPlan(rows=1))
    cost: Cost | None = None
    """From an array of lengths to what such samples cost; the square of the length, if not given."""

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        return None

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return None if inputs[0] is None or self.plan.rows is None else -(-inputs[0] // self.plan.rows)

    def steps(self, indexed: Indexed, seed: int) -> "BalancedOrder":
        """The steps of an epoch."""
        return BalancedOrder(self, indexed, key(seed, "balance"))

    def flow(self, samples: Iterator[T], here: Here) -> Iterator[list[T]]:
        indexed = cast("InputCursor[T]", samples).indexed()
        if indexed is None or indexed.lengths is None:
            raise BadPipe("balance() needs samples of known lengths: see Pipe.balance")
        order = self.steps(indexed, here.seed)
        done = 0
        for window in range(order.windows):
            for step in order.window(window):
                if done >= here.emitted:
                    place.at(here, done)
                    yield [indexed.get(position) for position in step]
                done += 1

    def describe(self) -> str:
        size = f"rows={self.plan.rows}" if self.plan.rows is not None else f"tokens={self.plan.tokens}"
        said = [size, f"like={self.plan.like}", f"window={self.plan.window}"]
        said += arguments(self.plan, ("rows", "tokens", "like", "window"))
        return f"balance({', '.join(said)}{'' if self.cost is None else f', cost={brief(self.cost)}'})"

    def identity(self) -> tuple[Any, ...]:
        # (The cost only decides which rank gets a sample: it is no part of the order.)
        return ("balance", repr(self.plan))


class BalancedOrder:
    """Which positions each step holds."""

    def __init__(self, op: Balance[Any], indexed: Indexed, seed: int) -> None:
        assert indexed.lengths is not None
        self._plan, self._cost, self._seed = op.plan, op.cost, seed
        self._lengths = indexed.lengths.at
        self._work = indexed.lengths.work
        self.length = indexed.length
        self.windows = max(1, indexed.length // op.plan.window)
        """The last one has what is left over too: so only the end of an epoch has a step that is not full."""

    @property
    def per_window(self) -> int:
        """Samples in every window but the last."""
        return self._plan.window

    def window(self, number: int) -> list[list[int]]:
        """The steps of a window, as positions."""
        first = number * self._plan.window
        stop = self.length if number == self.windows - 1 else first + self._plan.window
        lengths = self._lengths(np.arange(first, stop))
        return [
            [first + i for i in step] for step in self._plan.window_steps(lengths.tolist(), key(self._seed, number))
        ]

    def costs(self, positions: list[int]) -> list[float]:
        """What the samples at these positions cost."""
        some = np.array(positions, np.int64)
        if self._cost is None:
            costs = self._lengths(some) ** 2 if self._work is None else self._work(some)
        else:
            costs = self._cost(self._lengths(some))
        return [float(cost) for cost in costs]
