"""Partition: which samples each process reads at which step, and which are left out.

Every process reads one contiguous block of the epoch's order, in steps of one combined batch:

    N samples, P processes, steps of C       full = N // (C * P) whole steps
    process p at step s                      places p * full * C + s * C ... + C  of the epoch's order
    the N - P * full * C places behind       left out (drop_last), or dealt out in the last step by the policy `ends`

A Loader lets processes take whole batches in turn (plan.share). `ContiguousShards` puts the samples into the order in
which taking turns gives each process its block. So the Loader itself takes care of equal steps, of the policies for the
end, and of random values that differ between processes; no process asks another.

Shuffled, the epoch's order is one permutation of all samples, keyed by (seed, epoch): the same on every process, new
each epoch. The samples left out move on: they are the next arc of a fixed ring of all samples each epoch. An arc is
shorter than half the ring, so whatever one epoch leaves out, the next one has.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from headrace.errors import BadOption
from headrace.op import Here, Indexed, Op
from headrace.ops.shape.same import Same
from headrace.plan.order import Chunked, Ints, Shuffled
from headrace.plan.seed import key
from headrace.plan.share import EndPolicy, Share

T = TypeVar("T")


class LeftOut(NamedTuple):
    """What all processes together leave out in an epoch: whole batches, and samples that do not fill one."""

    batches: int
    samples: int
    total: int | None
    """In samples; None when the batches' sizes are not known (a batch_sampler)."""

    def __str__(self) -> str:
        parts = [f"{count} {name}" for count, name in ((self.batches, "batches"), (self.samples, "samples")) if count]
        return " and ".join(parts) or "nothing"


def share_of(samples: int, combined: int, processes: int, process: int, policy: EndPolicy) -> Share:
    """The share of one process. An epoch without a single step is an error."""
    if policy == "drop" and samples < combined * processes:
        raise BadOption(
            f"{samples} samples (N) do not fill one step: {processes} processes (P) x {combined} samples of a combined "
            f"batch (C) = {combined * processes}; use a smaller batch, fewer processes, or drop_last=False"
        )
    return Share(samples, combined, processes, process, policy)


@dataclass(frozen=True, slots=True)
class ContiguousShards(Op[T, T]):
    """The samples in the order in which processes take batches in turn, so that each reads its own block."""

    batch: int
    processes: int
    ends: EndPolicy
    left_out: int = 0
    seed: int | None = None
    """None: not shuffled."""

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        (inner,) = inputs
        used = inner.length - self.left_out
        order = _Order(self, used, self._whole_steps(used) * self.batch, here.epoch)
        at, fetch = Chunked(order, run=self.batch, lanes=self.processes).at, inner.get
        return Indexed(used, lambda position: fetch(at(position)))

    def _whole_steps(self, used: int) -> int:
        """The steps in which every process gets exactly one full batch."""
        share = Share(used, self.batch, self.processes, 0, self.ends)
        full = self.batch * self.processes
        return next(steps for steps in range(share.steps, -1, -1) if share.delivered(steps) == steps * full)

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return None if inputs[0] is None else inputs[0] - self.left_out

    def identity(self) -> tuple[Any, ...]:
        return ("blocks", self.batch, self.processes, self.ends, self.left_out, self.seed)


@dataclass(frozen=True, slots=True)
class StageBoundary(Same[T]):
    """Ends a stage: the ops after it may run in another worker. Nothing is read by position through it."""

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        return None

    def identity(self) -> tuple[Any, ...]:
        return ("hand_on",)  # its name in snapshots


@dataclass(frozen=True, slots=True)
class _Order:
    """Maps positions in the Loader's order to numbers of samples."""

    op: ContiguousShards[Any]
    length: int
    block: int
    """Samples of one process in whole steps."""
    epoch: int

    def __call__(self, positions: Ints) -> Ints:
        places = self._places(np.asarray(positions, dtype=np.int64))
        seed, left_out = self.op.seed, self.op.left_out
        if seed is None:
            return places
        shuffled = Shuffled(self.length, key(seed, "replicas", "epoch", self.epoch))(places)
        if not left_out:
            return shuffled
        everything = self.length + left_out
        # This epoch's arc is [epoch, epoch + 1) * left_out of the ring; what is read begins behind it.
        behind = (self.epoch + 1) * left_out % everything
        return Shuffled(everything, key(seed, "replicas", "ring"))((shuffled + behind) % everything)

    def _places(self, positions: Ints) -> Ints:
        batches, offsets = np.divmod(positions, self.op.batch)
        steps, processes = np.divmod(batches, self.op.processes)
        blocks = processes * self.block + steps * self.op.batch + offsets
        places: Ints = np.where(positions < self.block * self.op.processes, blocks, positions)
        return places
