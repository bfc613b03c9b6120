"""What a DataLoader's arguments mean: a pipe, and the policy of the `Loader` that runs it.

map-style       batches of indices are listed by the consumer; worker k mod num_workers fetches batch k, or any worker
                that is free (`reproducible=True`, `in_order=False`)
iterable-style  one strand per worker, delivered in turn; with `shard="auto"` one strand in all
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
)
from torch.utils.data.dataloader import _DatasetKind

from headrace.doors.torch.collate import shorter
from headrace.doors.torch.context import WorkerContext, WorkerSetup
from headrace.doors.torch.fetch import Fetch
from headrace.doors.torch.indices import ListedIndices
from headrace.doors.torch.shard import Batched, DealBatches, DealSamples, ShuffleStrand
from headrace.doors.torch.stream import Stream, stateful
from headrace.engine.policy import Policy
from headrace.loader import Loader
from headrace.ops.shape.batch import Batch
from headrace.ops.shape.collate import Collate
from headrace.pipe.graph import Pipe
from headrace.plan.world import World
from headrace.sources.listed import ItemsByEpoch

if TYPE_CHECKING:
    from headrace.doors.torch.loader import DataLoader


def is_iterable(loader: "DataLoader[Any]") -> bool:
    return bool(loader._dataset_kind == _DatasetKind.Iterable)


def style(loader: "DataLoader[Any]") -> str:
    """What kind of place a snapshot of this loader holds."""
    if not is_iterable(loader):
        return "map"
    return "iterable" if loader.shard is None else "auto"


def in_words(loader: "DataLoader[Any]") -> str:
    """What the arguments mean: who reads the dataset, who makes which batch, and what random values depend on."""
    if not is_iterable(loader):
        lines = ["the sampler runs in the consumer and lists the indices of each batch"]
        if loader.num_workers:
            free = loader.reproducible or not loader.in_order
            by_anyone = "any worker that is free fetches a batch"
            lines.append(by_anyone if free else "batch k is fetched by worker k mod num_workers")
    elif loader.shard == "auto":
        lines = ["the dataset is read once, in one worker; its batches are made in any worker"]
    elif loader.num_workers:
        lines = ["every worker reads the dataset for itself; batches are delivered in turn, one from each"]
    else:
        lines = ["the consumer reads the dataset"]
    lines.append(
        "random values depend on the seed and the batch"
        if loader.reproducible
        else "random values go on from batch to batch, as torch's do; reproducible=True makes them depend on the batch"
    )
    workers = f"{loader.num_workers} worker{'' if loader.num_workers == 1 else 's'}"
    return "\n  ".join([f"{type(loader).__name__} over {type(loader.dataset).__qualname__}, {workers}", *lines])


def opens(loader: "DataLoader[Any]") -> bool:
    """Whether it is known where the dataset stands before its first batch.

    Without workers `iter()` opens it, as torch does it; with workers only a state that is taken before the first batch
    waits until all of them have.
    """
    if not is_iterable(loader) or loader.shard == "auto" or loader.shuffle_window is not None:
        return False
    return loader.num_workers == 0 or stateful(loader.dataset)


def keeps_state(loader: "DataLoader[Any]") -> bool:
    """Whether each worker's copy of a map-style dataset has a state, and each batch a worker that it belongs to."""
    pinned = loader.num_workers > 0 and loader.in_order and not loader.reproducible
    return pinned and not is_iterable(loader) and stateful(loader.dataset)


def has_replicas(loader: "DataLoader[Any]") -> bool:
    """Whether several workers read the dataset, each for itself."""
    return is_iterable(loader) and loader.num_workers > 1 and loader.shard is None


def context_of(
    loader: "DataLoader[Any]", base_seed: int, dataset_states: Mapping[str, Any] | None = None
) -> WorkerContext:
    """What the workers have in common; `dataset_states` are the states that their map-style datasets go on from."""
    return WorkerContext(
        loader.dataset, shorter(loader.collate_fn), loader.worker_init_fn, base_seed, loader.num_workers,
        single_reader=loader.shard == "auto",
        dataset_states=dataset_states if keeps_state(loader) else None,
    )  # fmt: skip


def build(loader: "DataLoader[Any]", context: WorkerContext, items: ItemsByEpoch, epoch: int) -> Loader[Any]:
    """The loader of one iterator; `items` lists batches of indices."""
    strands = max(1, context.count) if is_iterable(loader) and loader.shard is None else None
    return Loader.of(
        pipe(loader, context, items), policy(loader, context), seed=context.base_seed, epoch=epoch,
        world=World(), strands=strands,
    )  # fmt: skip


def pipe(loader: "DataLoader[Any]", context: WorkerContext, items: ItemsByEpoch) -> Pipe[Any]:
    """The pipe of one iterator."""
    if not is_iterable(loader):
        return Pipe(
            Fetch(context.dataset, context.collate_fn, loader._auto_collation, keeps_state(loader)),
            Pipe(ListedIndices(items)),
        )
    size, drop_last, window, keyed = loader.batch_size, loader.drop_last, loader.shuffle_window, loader.reproducible
    if loader.shard is None and window is None:
        every = getattr(loader, "snapshot_every_n_steps", None)
        return Pipe(Stream(context, size, drop_last, keyed, opens=opens(loader), every=every))
    samples: Pipe[Any] = Pipe(Stream(context, None, False, keyed, single=True))
    if window is not None:
        samples = Pipe(ShuffleStrand(window), samples)
    if loader.shard is None:
        return Pipe(Batched(size, drop_last, context.collate_fn), samples)
    world = loader.world or World.detect()
    ranks, rank = world.share_ranks, world.share_rank
    if size is None:
        samples = Pipe(DealSamples(ranks, rank), samples) if ranks > 1 else samples
    else:
        samples = Pipe(DealBatches(size, drop_last, ranks, rank) if ranks > 1 else Batch(size, drop_last), samples)
    return Pipe(Collate(context.collate_fn), samples)


def policy(loader: "DataLoader[Any]", context: WorkerContext) -> Policy:
    """How the pipe is run."""
    workers: int = loader.num_workers
    randomness: Literal["keyed", "carried"] = "keyed" if loader.reproducible else "carried"
    if workers == 0:
        return Policy(randomness=randomness)
    unordered = not loader.in_order and workers > 1  # (one worker has an order, also where none is asked for)
    free = loader.reproducible or unordered or loader.shard == "auto"
    early = free if is_iterable(loader) else _may_draw_early(loader) and (free or _may_work_early(loader))
    ahead = loader.prefetch_factor
    assert ahead is not None  # (torch sets it where there are workers)
    return Policy(
        workers=workers,
        kind="process",
        prefetch=ahead,
        ordered=loader.in_order,
        timeout=loader.timeout or None,
        start_method=start_method(loader),
        worker_init=WorkerSetup(context),
        # torch has this many batches under way, and asks its sampler for the next one when it hands one out.
        window=None if free and early else ahead * workers,
        stretch=early,
        pinned=not free,
        randomness=randomness,
    )


class DefaultPrefetch(int):
    """A `prefetch_factor` that the user has not given; a loader built from the attributes of another has it too."""


def _may_work_early(loader: "DataLoader[Any]") -> bool:
    """Whether workers may have more batches under way than torch gives them.

    Workers that stay show the next epoch what they did after a `break`; a time-out counts from when torch would begin.
    """
    return type(loader.prefetch_factor) is DefaultPrefetch and not loader.persistent_workers and not loader.timeout


def _may_draw_early(loader: "DataLoader[Any]") -> bool:
    """Whether indices may be drawn before torch would draw them: nobody else draws from, or changes, what they are
    drawn from once the first one is there. Only torch's own classes are known; a subclass may do anything."""
    sampler = loader._index_sampler
    if type(sampler) is BatchSampler:
        sampler = sampler.sampler
    if type(sampler) is RandomSampler:
        return sampler.generator is None  # (else it draws from it again when it is asked for one more than it has)
    return type(sampler) in DRAWN_AT_ONCE


DRAWN_AT_ONCE = (SequentialSampler, DistributedSampler, WeightedRandomSampler)
"""Samplers that have all their indices when they have given the first one."""


def start_method(loader: "DataLoader[Any]") -> Any:
    """Fork where torch forks; for `spawn` and `forkserver` the clean server, which user code cannot tell from them."""
    context = loader.multiprocessing_context or torch.multiprocessing
    return "fork" if context.get_start_method() == "fork" else "server"
