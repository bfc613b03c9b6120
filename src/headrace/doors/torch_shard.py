"""What the door adds to iterable-style datasets: shuffling in windows, and an exact division by `shard="auto"`.

With `shard="auto"` the dataset is read once per rank, by one worker; `Deal` cuts its samples into batches and keeps those
of this rank, and every worker collates. So each sample comes exactly once, whatever the dataset knows of workers.

    dataset ── Stream (one strand) ── [ShuffleStrand] ── Deal ──> batches ──> Collated, on any worker
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from headrace.doors.torch_stream import Raised
from headrace.op import Each, Op
from headrace.ops.shuffle import Shuffle
from headrace.plan.seed import key
from headrace.plan.share import Share


def as_it_is(sample: Any) -> Any:
    return sample


@dataclass(frozen=True, slots=True, eq=False)
class ShuffleStrand(Op[Any, Any]):
    """Another order inside consecutive windows, another one in each strand."""

    window: int

    def flow(self, *inputs: Any) -> Iterator[Any]:
        samples, here = inputs
        here.seed = key(here.seed, "strand", here.strand)
        return Shuffle[Any](self.window).flow(_sound(samples), here)


@dataclass(frozen=True, slots=True, eq=False)
class Batched(Op[Any, Any]):
    """Batches of one strand, collated."""

    size: int | None
    drop_last: bool
    collate_fn: Callable[[Any], Any]
    quiet = True
    user = True

    def flow(self, *inputs: Any) -> Iterator[Any]:
        samples, _ = inputs
        if self.size is None:
            for sample in _sound(samples):
                yield self.collate_fn(sample)
            return
        sound = _sound(samples)
        while batch := list(islice(sound, self.size)):
            if len(batch) < self.size and self.drop_last:
                return
            yield self.collate_fn(batch)


@dataclass(frozen=True, slots=True, eq=False)
class Deal(Op[Any, Any]):
    """The batches of one rank, not yet collated; every rank gets as many, and each sample goes to one of them.

    Ranks take whole batches in turn; two steps are held back, because the end is shared by other rules (`plan.share`).
    """

    size: int | None
    drop_last: bool
    ranks: int = 1
    rank: int = 0

    def flow(self, *inputs: Any) -> Iterator[Any]:
        samples, here = inputs
        sound = _sound(samples)
        if self.size is None:
            return _resting(islice(sound, self.rank, None, self.ranks) if here.note is None else sound, here, self)
        return self._batches(sound, here)

    def _batches(self, samples: Iterator[Any], here: Any) -> Iterator[list[Any]]:
        assert self.size is not None
        step = self.size * self.ranks
        first = self.size * self.rank
        held = list(islice(samples, step))
        while True:
            after = list(islice(samples, step)) if len(held) == step else []
            if len(after) < step:
                break
            yield held[first : first + self.size]
            held = after
        held += after
        if held:
            share = Share(len(held), self.size, self.ranks, self.rank, "drop" if self.drop_last else "short")
            for number in range(share.steps):
                block = share.block(number)
                yield held[block.start : block.stop]


@dataclass(frozen=True, slots=True, eq=False)
class Collated(Each[Any, Any]):
    """A batch, collated."""

    collate_fn: Callable[[Any], Any]
    user = True

    def apply(self, sample: Any) -> Any:
        return self.collate_fn(sample)


def _sound(samples: Iterator[Any]) -> Iterator[Any]:
    for sample in samples:
        if type(sample) is Raised:
            raise sample.error
        yield sample
