"""Bucket: batches of samples of like length, each of a bounded number of tokens.

A window of positions is sorted by length and cut into batches, which come in a keyed random order. A window is a unit
of work, and the most that a resume reads again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
        return f"bucket({self.plan.tokens}, padded={self.plan.padded}, window={self.plan.window})"

    def identity(self) -> tuple[Any, ...]:
        return ("bucket", repr(self.plan))
