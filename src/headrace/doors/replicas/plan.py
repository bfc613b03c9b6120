"""Plan: the arguments of a replica-aware loader, checked, and the pipe that they mean.

batch_sampler        lists of numbers, one a micro-batch, those of a step together -> samples -> collate each -> join
sampler              numbers, in combined batches -> samples -> collate
map-style data set   this process's block -> combined batches -> collate
iterable data set    one stream, read in one place -> combined batches -> collate; its tail is cut once, at its end
batch_size=None      items as they are
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from headrace.doors.replicas.feed import LoadPlan, one_by_one
from headrace.doors.replicas.layout import Layout
from headrace.doors.replicas.partition import ContiguousShards, LeftOut, StageBoundary, share_of
from headrace.doors.replicas.tensors import AsTensors, MicroBatches
from headrace.errors import BadOption
from headrace.pipe.graph import Pipe
from headrace.plan.share import EndPolicy, Share
from headrace.plan.world import World


@dataclass(frozen=True, slots=True, eq=False)
class LoaderArguments:
    """What a DataLoader was given."""

    dataset: Any
    layout: Layout
    world: World
    batch_size: int | None
    policy: EndPolicy
    seed: int
    shuffle: bool = False
    sampler: Any = None
    batch_sampler: Any = None
    collate_fn: Callable[[Any], Any] | None = None
    piece: int | None = None
    """Samples that a worker loads at a time; None: a whole combined batch."""

    def __post_init__(self) -> None:
        size, several = self.batch_size, self.world.share_ranks > 1
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
            raise BadOption(f"batch_size must be None or a whole number >= 1, not {size!r}")
        if self.batch_sampler is not None and (size != 1 or self.shuffle or self.sampler is not None):
            raise BadOption(
                "batch_sampler and batch_size, shuffle or sampler are mutually exclusive: it decides them all"
            )
        if self.sampler is not None and self.shuffle:
            raise BadOption("sampler and shuffle are mutually exclusive: the sampler decides the order")
        for name in ("batch_sampler", "sampler"):
            if getattr(self, name) is not None and several:
                raise BadOption(
                    f"{name} and automatic partitioning over {self.world.share_ranks} processes are mutually "
                    f"exclusive: leave {name} out, or let it choose this process's samples and set "
                    "auto_distributed_partitioning=False"
                )
        if size is None and several:
            raise BadOption(
                f"batch_size=None cannot be partitioned over {self.world.share_ranks} processes; give a batch_size, or "
                "partition the data set yourself and set auto_distributed_partitioning=False"
            )
        if self.piece is not None and not 1 <= self.piece <= (self.combined or 1):
            raise BadOption(
                f"rebatched_worker_size={self.piece} must be between 1 and the combined batch size ({self.combined})"
            )

    @property
    def combined(self) -> int | None:
        size = self.batch_size if self.batch_sampler is None else getattr(self.batch_sampler, "batch_size", None)
        return None if size is None else size * self.layout.micro_batches

    @property
    def drop_last(self) -> bool:
        return self.policy == "drop"

    def plan(self) -> LoadPlan:
        """The pipe that these arguments mean, and what is known about its batches."""
        if self.batch_sampler is not None:
            return self._batch_sampled()
        if self.sampler is not None:
            return self._counted(Pipe.of(self.sampler), SamplesByNumber(_map_style(self.dataset, "sampler")))
        pipe = Pipe.of(self.dataset)
        if pipe.indexed(0, 0) is not None:
            return self._partitioned(pipe)
        if self.world.share_ranks > 1:
            raise BadOption(
                f"an iterable data set cannot be partitioned over {self.world.share_ranks} processes: nobody knows "
                "which part is whose; let it yield this process's part and set auto_distributed_partitioning=False"
            )
        if self.shuffle:
            raise BadOption("shuffle=True needs a data set with len() and [i]; an iterable one shuffles itself")
        return replace(self._counted(pipe), stream=True)

    def _partitioned(self, pipe: Pipe[Any]) -> LoadPlan:
        seed = self.seed if self.shuffle else None
        if self.combined is None:
            items = pipe.then(ContiguousShards(1, 1, "short", 0, seed)) if self.shuffle else pipe
            return self._plan(self._finished(one_by_one(items)), LeftOut(0, 0, 0))
        world, samples = self.world, len(pipe)
        share = share_of(samples, self.combined, world.share_ranks, world.share_rank, self.policy)
        piece = self._piece(share)
        if share.ranks > 1 or self.shuffle or piece:
            size = piece or self.combined
            pipe = pipe.then(ContiguousShards(size, share.ranks, self.policy, share.left_out, seed))
        if piece:
            # Any worker loads a piece; a worker that is free then joins the pieces of a step.
            steps = pipe.batch(piece).then(StageBoundary()).batch(self.combined // piece).map(joined)
        else:
            steps = pipe.batch(self.combined, self.drop_last)
        inputs = self.combined // piece if piece else self.combined
        return self._plan(self._collated(steps), self._left_out(share), share, inputs)

    def _piece(self, share: Share) -> int | None:
        """How many samples a worker loads at a time: the largest number up to `piece` that divides a step evenly.

        None: whole steps. Where the end of an epoch is shared among processes, it is shared in whole steps.
        """
        whole = share.length % (share.batch * share.ranks) == 0
        if self.piece is None or not (whole or self.drop_last or (self.policy == "short" and share.ranks == 1)):
            return None
        fitting = next(size for size in range(self.piece, 0, -1) if share.batch % size == 0)
        return fitting if fitting < share.batch else None

    def _counted(self, pipe: Pipe[Any], fetch: "SamplesByNumber | None" = None) -> LoadPlan:
        """Numbers of a sampler (`fetch` reads the samples), or samples of a stream, in the order in which they come."""
        if self.combined is None:
            items = pipe if fetch is None else pipe.map(fetch.one)
            return self._plan(self._finished(items), LeftOut(0, 0, 0))
        known = pipe.length()
        share = None if known is None else share_of(known, self.combined, 1, 0, self.policy)
        pipe = pipe.batch(self.combined, self.drop_last)
        left_out = None if share is None else self._left_out(share)
        return self._plan(self._collated(pipe if fetch is None else pipe.map(fetch)), left_out)

    def _batch_sampled(self) -> LoadPlan:
        batches: Pipe[Any] = Pipe.of(self.batch_sampler)
        known, together = batches.length(), self.layout.micro_batches
        left_out = None
        if known is not None:
            left_out = LeftOut(known % together if self.drop_last else 0, 0, None)
        dataset, steps = _map_style(self.dataset, "batch_sampler"), batches.batch(together, self.drop_last)
        if self.collate_fn is not None:
            return self._plan(steps.map(MicroBatches(dataset, self.collate_fn)), left_out)
        # Stacking all samples of a step gives what stacking and joining would.
        return self._plan(steps.map(SamplesByNumber(dataset, nested=True)).collate(), left_out)

    def _collated(self, pipe: Pipe[Any]) -> Pipe[Any]:
        return pipe.collate() if self.collate_fn is None else pipe.collate(self.collate_fn)

    def _finished(self, pipe: Pipe[Any]) -> Pipe[Any]:
        return pipe if self.collate_fn is None else pipe.map(self.collate_fn)

    def _left_out(self, share: Share) -> LeftOut:
        assert self.batch_size is not None
        return LeftOut(*divmod(share.left_out, self.batch_size), share.left_out)

    def _plan(
        self, pipe: Pipe[Any], left_out: LeftOut | None, share: Share | None = None, inputs: int | None = None
    ) -> LoadPlan:
        finish = AsTensors() if self.collate_fn is None else None
        options = {"world": self.world, "ends": self.policy, "seed": self.seed}
        return LoadPlan(pipe, finish, share, inputs, left_out, options=options)


@dataclass(frozen=True, slots=True, eq=False)
class SamplesByNumber:
    """Reads the samples of a data set by their numbers; `nested`: the numbers come in several lists."""

    dataset: Any
    nested: bool = False

    def __call__(self, numbers: list[Any]) -> list[Any]:
        flat = (n for part in numbers for n in part) if self.nested else numbers
        return [self.dataset[n] for n in flat]

    def one(self, number: object) -> Any:
        return self.dataset[number]


def joined(pieces: list[list[Any]]) -> list[Any]:
    return [sample for piece in pieces for sample in piece]


def _map_style(dataset: object, name: str) -> Any:
    if not hasattr(dataset, "__getitem__"):
        raise BadOption(f"{name} needs a data set with [i], not {type(dataset).__name__}")
    return dataset
