"""Bucket: batches of samples of like length, each of a bounded number of tokens.

A window of positions is sorted by length and cut into batches, which come in a keyed random order.

    BucketBatches   where the lengths of all samples are known: any batch by its number
    BucketWindows   where they are not: a window is a unit of work, and the most that a resume reads again
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.op import Here, Indexed, place
from headrace.ops.text.numbered import NumberedOp
from headrace.ops.text.windows import WindowOp
from headrace.plan.balance import StepPlan


@dataclass(frozen=True, slots=True)
class BucketWindows(WindowOp[list[Any]]):
    """The batches of each window, as a list."""

    plan: StepPlan
    measure: Callable[[Any], int] | None = None
    """The length of a sample; that of its tokens, if not given."""

    @property
    def window(self) -> int:
        return self.plan.window

    def make(self, samples: list[Any], seed: int, last: bool) -> list[list[Any]]:
        lengths = [self._length(sample) for sample in samples]
        return [[samples[i] for i in step] for step in self.plan.window_steps(lengths, seed)]

    def _length(self, sample: object) -> int:
        if self.measure is not None:
            return self.measure(sample)
        from headrace.ops.text.rows import tokens_of

        return len(tokens_of(sample))

    def describe(self) -> str:
        return _describe(self.plan)

    def identity(self) -> tuple[Any, ...]:
        return ("bucket", repr(self.plan))


@dataclass(frozen=True, slots=True)
class BucketBatches(NumberedOp[Any, list[Any]]):
    """Any batch by its number."""

    plan: StepPlan
    batches = True

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        from headrace.ops.text.planned import WindowPlans

        (inner,) = inputs
        if inner.lengths is None:
            return None
        plan = self.plan

        def steps(lengths: list[int], seed: int, last: bool) -> list[list[int]]:
            return plan.window_steps(lengths, seed)

        plans = WindowPlans(inner, inner.lengths, plan.window, here.seed, steps, len, ("bucket", plan))

        def get(position: int) -> list[Any]:
            window, number, made = plans.find(position)
            batch = [inner.get(window * plan.window + i) for i in made[number]]
            place.at(here, position)
            return batch

        found = Indexed(plans.outputs, get)
        found.remark = f"bucket: {inner.length} samples in {plans.windows} windows are {found.length} batches"
        return found

    def describe(self) -> str:
        return _describe(self.plan)

    def identity(self) -> tuple[Any, ...]:
        return ("bucket", repr(self.plan))

    @classmethod
    def name(cls) -> str:
        return "bucket"


def _describe(plan: StepPlan) -> str:
    return f"bucket({plan.tokens}, padded={plan.padded}, window={plan.window})"
