"""What the door adds to iterable-style datasets: shuffling in windows, and an exact division by `shard="auto"`.

With `shard="auto"` the dataset is read once per rank, by one worker, in one strand; its samples are cut into batches,
of which each rank keeps its own, and every worker collates. So each sample comes exactly once, whatever the dataset
knows of workers.

    Stream ── [ShuffleStrand] ── Batch (or DealBatches, DealSamples) ──> batches ──> Collate, on any worker
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from headrace.doors.torch.numpy_collate import is_default_collate
from headrace.op import Op
from headrace.ops.order.shuffle import Shuffle
from headrace.ops.shape.batch import Batch
from headrace.plan.seed import key
from headrace.plan.share import Share

log = logging.getLogger("headrace")


@dataclass(frozen=True, slots=True, eq=False)
class ShuffleStrand(Op[Any, Any]):
    """Shuffles inside consecutive windows, in another order in each strand."""

    window: int

    def flow(self, *inputs: Any) -> Iterator[Any]:
        samples, here = inputs
        here.seed = key(here.seed, "strand", here.strand)
        shuffle: Shuffle[Any] = Shuffle(self.window)
        return shuffle.flow(samples, here)


@dataclass(frozen=True, slots=True, eq=False)
class Batched(Op[Any, Any]):
    """Batches of one strand, collated."""

    size: int | None
    drop_last: bool
    collate_fn: Callable[[Any], Any]
    quiet = True
    user = True
    batches = True

    @property
    def fresh(self) -> bool:
        return self.size is not None and is_default_collate(self.collate_fn)

    def flow(self, *inputs: Any) -> Iterator[Any]:
        samples, here = inputs
        if self.size is not None:
            samples = Batch(self.size, self.drop_last).flow(samples, here)
        for sample in samples:
            yield self.collate_fn(sample)


@dataclass(frozen=True, slots=True, eq=False)
class DealBatches(Op[Any, Any]):
    """The batches of one rank, not yet collated; every rank gets as many, and each sample goes to one of them.

    Ranks take whole batches in turn. One step is held back, because the end is shared by other rules (`plan.share`): so
    a resume reads again from the start.
    """

    size: int
    drop_last: bool
    ranks: int
    rank: int

    def flow(self, *inputs: Any) -> Iterator[list[Any]]:
        samples = inputs[0]
        step, first = self.size * self.ranks, self.size * self.rank
        held: list[Any] = []
        while len(after := list(islice(samples, step))) == step:
            if held:
                yield held[first : first + self.size]
            held = after
        held += after
        share = Share(len(held), self.size, self.ranks, self.rank, "drop" if self.drop_last else "short")
        for number in range(share.steps):
            block = share.block(number)
            yield held[block.start : block.stop]


@dataclass(frozen=True, slots=True, eq=False)
class DealSamples(Op[Any, Any]):
    """Sample i for rank i modulo ranks; the last few, which not every rank would get, are left out and counted."""

    ranks: int
    rank: int
    quiet = True

    def flow(self, *inputs: Any) -> Iterator[Any]:
        samples = inputs[0]
        while len(step := list(islice(samples, self.ranks))) == self.ranks:
            yield step[self.rank]
        if step and self.rank == 0:
            log.warning(
                "%d samples at the end of the epoch are left out: %d ranks take the same number of steps, and "
                "batch_size=None fills none of them; give a batch_size", len(step), self.ranks,
            )  # fmt: skip
