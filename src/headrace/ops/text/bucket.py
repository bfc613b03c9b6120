"""Bucket: batches of samples of like length, each of a bounded number of tokens.

A window of positions is sorted by length and cut into batches, which come in a keyed random order.

    BucketBatches   where the lengths of all samples are known: any batch by its number
    BucketWindows   where they are not: a window is a unit of work, and the most that a resume reads again

A sample that fails is left out of its batch by itself (`on_error="skip"`), and a batch with it only if nothing is left.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.context import read_each
from headrace.op import Here, Indexed, place
from headrace.ops.text.numbered import NumberedOp, WindowPlans
from headrace.ops.text.rows import tokens_of
from headrace.ops.text.windows import WindowOp
from headrace.plan.balance import StepPlan, too_large


class BucketOp:
    """What both ops have in common: how they are printed and fingerprinted."""

    __slots__ = ()
    plan: StepPlan

    def describe(self) -> str:
        return f"bucket({self.plan.tokens}, padded={self.plan.padded}, window={self.plan.window})"

    def identity(self) -> tuple[Any, ...]:
        return ("bucket", repr(self.plan))


@dataclass(frozen=True, slots=True)
class BucketWindows(BucketOp, WindowOp[list[Any]]):
    """The batches of each window, as a list."""

    plan: StepPlan
    measure: Callable[[Any], int] | None = None
    """The length of a sample; that of its tokens, if not given."""

    def taker(self) -> Callable[[Any, int], tuple[Any, int]]:
        most = self.plan.tokens

        def take(sample: Any, position: int) -> tuple[Any, int]:
            length = len(tokens_of(sample)) if self.measure is None else self.measure(sample)
            if most is not None and length > most:
                raise too_large(position, length, most)
            return sample, length

        return take

    def make(self, samples: list[tuple[Any, int]], seed: int, last: bool, here: Here) -> list[list[Any]]:
        steps = self.plan.window_steps([length for _, length in samples], seed)
        return [[samples[i][0] for i in step] for step in steps]


@dataclass(frozen=True, slots=True)
class BucketBatches(BucketOp, NumberedOp[Any, list[Any]]):
    """Batches, each by its number."""

    plan: StepPlan
    batches = True
    verb = "bucket"

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        (inner,) = inputs
        if inner.lengths is None:
            return None
        plan = self.plan
        plans = WindowPlans(
            inner, plan.window, here.seed, lambda lengths, seed, _: plan.window_steps(lengths, seed), ("bucket", plan)
        )

        def get(position: int) -> list[Any]:
            window, number, made = plans.find(position)
            wanted = [window * plan.window + i for i in made[number]]
            batch = read_each(wanted, lambda at: (inner.get(at),), here, position)
            place.at(here, position)
            return [found[0] for found in batch if found is not None]

        found = Indexed(plans.outputs, get)
        found.remark = f"bucket: {inner.length} samples in {plans.windows} windows are {found.length} batches"
        return found
