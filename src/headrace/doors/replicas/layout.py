"""Layout: which micro-batches one step holds, in which order, and to which replica each belongs.

A step (one `next()` on one process) is a *combined batch*. Along its first extent lie, slowest first:

    [device iterations][gradient accumulation][groups of replicas][micro-batch]

so that micro-batch number m = (d * accumulation + g) * groups + group belongs to the replicas of that group. Without
input groups every replica is a group of its own. Groups are neighbours (Consecutive: {0, 1}, {2, 3}) or lie a number of
groups apart (Orthogonal: {0, 2}, {1, 3}).
"""

from dataclasses import dataclass
from typing import Any, Self

from headrace.doors.replicas.options import CommGroupType, Options, check_groups
from headrace.doors.replicas.tree import rows, sliced
from headrace.errors import BadOption


@dataclass(frozen=True, slots=True)
class Layout:
    """All numbers are those of one process."""

    device_iterations: int = 1
    gradient_accumulation: int = 1
    replicas: int = 1
    group_size: int = 1
    group_type: CommGroupType = CommGroupType.Consecutive

    def __post_init__(self) -> None:
        check_groups(self.replicas, self.group_size, self.group_type)

    @classmethod
    def of(cls, options: Options) -> Self:
        return cls(
            options.device_iterations, options.gradient_accumulation, options.replication_factor,
            options.input_group_size, options.input_group_type,
        )  # fmt: skip

    @property
    def groups(self) -> int:
        return self.replicas // self.group_size

    @property
    def micro_batches(self) -> int:
        """How many micro-batches make one combined batch."""
        return self.device_iterations * self.gradient_accumulation * self.groups

    def group(self, replica: int) -> int:
        if self.group_type is CommGroupType.Orthogonal:
            return replica % self.groups
        return replica // self.group_size

    def numbers(self, replica: int) -> range:
        """The micro-batches of a replica, in the order in which it runs them."""
        return range(self.group(replica), self.micro_batches, self.groups)


def split(batch: object, options: Options | Layout) -> list[list[Any]]:
    """`split(batch, options)[replica]` is what that local replica runs: its micro-batches, in order.

    The parts look into the batch where arrays and tensors allow it; replicas of one input group share theirs.
    """
    layout = options if isinstance(options, Layout) else Layout.of(options)
    samples, count = rows(batch), layout.micro_batches
    size, over = divmod(samples, count)
    if over or not size:
        raise BadOption(
            f"a batch of {samples} samples is not a multiple of {count} micro-batches: deviceIterations "
            f"({layout.device_iterations}) * replicationFactor ({layout.replicas}) / input_group_size "
            f"({layout.group_size}) * gradientAccumulation ({layout.gradient_accumulation}); "
            "load with drop_last=True, or ends='pad' or 'repeat', so that every batch is whole"
        )
    parts = [sliced(batch, m * size, (m + 1) * size) for m in range(count)]
    return [[parts[m] for m in layout.numbers(replica)] for replica in range(layout.replicas)]
