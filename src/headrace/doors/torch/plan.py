"""What a DataLoader's arguments mean: a program for the engine and a policy to run it with.

map-style       batches of indices are listed by the consumer; worker k mod num_workers fetches batch k, or any worker
                that is free (`reproducible=True`, `in_order=False`)
iterable-style  one strand per worker, delivered in turn; with `shard="auto"` one strand in all
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.utils.data import BatchSampler
from torch.utils.data.dataloader import _DatasetKind

from headrace.doors.torch.collate import shorter
from headrace.doors.torch.crew import Crew, Setup
from headrace.doors.torch.fetch import Fetch
from headrace.doors.torch.orders import KNOWN
from headrace.doors.torch.shard import (
    Batched,
    Collated,
    DealBatches,
    DealSamples,
    ShuffleStrand,
    Sound,
    as_it_is,
)
from headrace.doors.torch.stream import Stream, stateful
from headrace.engine.policy import Policy
from headrace.engine.program import Program, Stage
from headrace.ops.shape.batch import Batch
from headrace.pipe.graph import Pipe
from headrace.plan.world import World


def is_iterable(loader: Any) -> bool:
    return bool(loader._dataset_kind == _DatasetKind.Iterable)


def style(loader: Any) -> str:
    """What kind of place a snapshot of this loader holds."""
    if not is_iterable(loader):
        return "map"
    return "iterable" if loader.shard is None else "auto"


def tells(loader: Any, workers: int) -> bool:
    """A place before the first batch holds the dataset's state: it is opened by `iter()`, or has a state of its own.

    Without workers it is opened then, as torch does it; in workers only somebody who waits for all of them can tell.
    """
    if not is_iterable(loader) or loader.shard == "auto" or loader.shuffle_window is not None:
        return False
    return workers == 0 or stateful(loader.dataset)


def keeps_state(loader: Any) -> bool:
    """A map-style dataset has a state in each worker, and each batch its own worker."""
    pinned = loader.num_workers > 0 and loader.in_order and not loader.reproducible
    return pinned and not is_iterable(loader) and stateful(loader.dataset)


def has_replicas(loader: Any) -> bool:
    """Several workers read the dataset, each for itself."""
    return is_iterable(loader) and loader.num_workers > 1 and loader.shard is None


def crew_of(loader: Any, base_seed: int, recorded: int | None = None, own: Mapping[str, Any] | None = None) -> Crew:
    """The workers; `recorded` is the num_workers of the snapshot that the epoch goes on from, `own` their states."""
    auto = loader.shard == "auto"
    count = loader.num_workers if recorded is None else recorded
    played = is_iterable(loader) and not auto and count != loader.num_workers
    return Crew(
        loader.dataset, shorter(loader.collate_fn), loader.worker_init_fn, base_seed, count, played=played, reader=auto,
        own=own if keeps_state(loader) else None,
    )  # fmt: skip


def program(loader: Any, crew: Crew) -> Program:
    """The program of one iterator."""
    keyed = loader.reproducible
    if not is_iterable(loader):
        node = Pipe(Fetch(crew.dataset, crew.collate_fn, loader._auto_collation, keeps_state(loader)))
        return Program(node, node, (Stage(0, (), (node,), "listed"),), (), crew.base_seed, keyed=keyed)
    size, drop_last, window = loader.batch_size, loader.drop_last, loader.shuffle_window
    strand = Stage(0, (), (), "strand")
    if loader.shard != "auto":
        strands = max(1, crew.count)
        if window is None:
            every = getattr(loader, "snapshot_every_n_steps", None)
            head = Pipe(Stream(crew, size, drop_last, keyed, tells(loader, crew.count), True, every))
        else:
            samples = Pipe(Stream(replace(crew, collate_fn=as_it_is), None, False, keyed))
            head = Pipe(Batched(size, drop_last, crew.collate_fn), Pipe(ShuffleStrand(window), samples))
        return Program(head, head, (strand,), (), crew.base_seed, keyed=keyed, strands=strands, strand_block=1)
    head = Pipe(Stream(replace(crew, collate_fn=as_it_is), None, False, keyed))
    if window is not None:
        head = Pipe(ShuffleStrand(window), head)
    head = _dealt(head, size, drop_last, loader.world or World.detect())
    last = Pipe(Collated(crew.collate_fn), head)
    stages = (strand, Stage(1, (), (last,), "refs"))
    return Program(last, head, stages, (), crew.base_seed, keyed=keyed, strand_block=1)


def _dealt(samples: "Pipe[Any]", size: int | None, drop_last: bool, world: World) -> "Pipe[Any]":
    if world.share_ranks > 1:
        if size is None:
            return Pipe(DealSamples(world.share_ranks, world.share_rank), samples)
        return Pipe(DealBatches(size, drop_last, world.share_ranks, world.share_rank), samples)
    sound = Pipe(Sound(), samples)
    return sound if size is None else Pipe(Batch(size, drop_last), sound)


def policy(loader: Any, crew: Crew) -> Policy:
    """How the program is run."""
    workers = loader.num_workers
    if workers == 0:
        return Policy(randomness="keyed" if loader.reproducible else "carried")
    free = loader.reproducible or not loader.in_order or loader.shard == "auto"
    strands = max(crew.count, 1) if is_iterable(loader) and loader.shard != "auto" else 0
    ahead: int = loader.prefetch_factor
    return Policy(
        workers=workers,
        kind="process",
        prefetch=ahead,
        ordered=loader.in_order,
        timeout=loader.timeout or None,
        start_method=start_method(loader),
        worker_init=Setup(crew),
        # torch has this many batches under way, and asks its sampler for the next one when it hands one out.
        # More only where nobody can tell: of torch's own samplers, and of small batches.
        window=None if free else ahead * max(workers, 2 * strands),
        stretch=free or _indifferent(loader),
        stealing=free,
        randomness="keyed" if loader.reproducible else "carried",
    )


def _indifferent(loader: Any) -> bool:
    """Whether indices may be drawn some batches earlier than torch draws them: nobody else has a hand in it."""
    batches = loader.batch_sampler
    if batches is not None and type(batches) is not BatchSampler:
        return False
    return type(loader.sampler if batches is None else batches.sampler) in KNOWN


def start_method(loader: Any) -> Any:
    """Fork where torch forks; for `spawn` and `forkserver` the clean server, which nobody can tell from them."""
    context = loader.multiprocessing_context or torch.multiprocessing
    return "fork" if context.get_start_method() == "fork" else "server"
