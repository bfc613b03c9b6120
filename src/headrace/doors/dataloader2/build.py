"""The loader of a DataLoader2: a graph and the settings of its services, as a `Loader`.

    exact         a shard point says where work is divided: among ranks and workers, by the engine's arithmetic
    strands       an object of the user's behind a shard point sees a stream, so it runs in workers as a fixed number of
                  copies, each with its share of what the shard point lets through; their samples come in turn (`heads`:
                  a stream before the shard point is read once in each worker)
    per-worker    as many copies of the whole graph as there are workers

Under ranks, a graph that only some op of the user's could divide, or nobody, is run whole by every rank, and ranks meet
at `fullsync`: see `fullsync.Together`.
"""

import warnings
from collections.abc import Iterator
from typing import Any

from headrace.doors.dataloader2.services import ReadSettings
from headrace.doors.dataloader2.workers import GraphCopies, WorkerInit, WorkerReset, with_reset
from headrace.doors.datapipes.fullsync import rewritten, together
from headrace.doors.datapipes.graph import lint
from headrace.doors.datapipes.lowering import lowered
from headrace.doors.datapipes.user import UserStream
from headrace.engine.wire.words import Words
from headrace.errors import SnapshotRefused
from headrace.loader import Loader
from headrace.ops.order.sharding import Sharding
from headrace.ops.shape.same import Dispatch, FullSync
from headrace.pipe.graph import Pipe
from headrace.plan.world import World
from headrace.sources.wrapped import WrappedIterable

WORDS = Words(
    there="make it where it is used (for example in the function of a map), or use "
    "MultiProcessingReadingService(multiprocessing_context='fork')"
)


def build(graph: object, settings: ReadSettings) -> Loader[Any]:
    """The loader that runs a graph."""
    if settings.sharding == "exact":
        for text in lint(graph, settings.workers):
            warnings.warn(text, stacklevel=6)
    pipe = lowered(graph)
    replicated = settings.sharding == "per-worker" and settings.workers > 0
    if replicated and any(isinstance(node.op, Dispatch) for node in pipe.nodes()):
        replicated = False  # what stands before a dispatch runs once: work is divided there, and not by copies
    strands: int | None = settings.workers if replicated else settings.strands
    world = settings.world
    divided = any(isinstance(node.op, Sharding) for node in pipe.nodes())
    if settings.reset is not None and settings.workers and not replicated:
        pipe = with_reset(pipe, WorkerReset(settings.reset, graph, settings.workers))
    last = None if replicated else _last_own(pipe)
    # Where a graph is divided by copies, those of all ranks together divide it.
    mine = (world.share_rank, world.share_ranks) if world is not None and divided else (0, 1)
    if last is not None:
        copies = GraphCopies(_marked_late(last), share=mine, workers=max(1, settings.workers))
        there = Pipe(copies)
        made = rewritten(pipe, lambda node, below: there if node is last else Pipe(node.op, *below))
        pipe, divided = made[id(pipe)], False
    elif replicated:
        changes = settings.init is not None or settings.reset is not None
        copies = GraphCopies(graph if changes else pipe, settings.init, settings.reset, mine)
        # Ranks meet behind the copies, not in them.
        pipe = Pipe(pipe.op, Pipe(copies)) if isinstance(pipe.op, FullSync) else Pipe(copies)
        divided = False
    else:
        strands = None
    init = None
    if settings.workers and settings.kind == "process" and not replicated:
        init = WorkerInit(settings.init, graph, settings.workers)
    alone = world is not None and not divided
    # A state of one rank's own stream is of no use to another rank, and is refused there.
    seed = world.rank if alone and mine == (0, 1) and world is not None else 0
    return Loader(
        together(pipe) if alone else pipe,
        seed=seed,
        workers=settings.workers,
        kind=settings.kind,
        start_method=settings.start_method,
        prefetch=settings.prefetch,
        window=settings.window,
        strands=strands,
        worker_init=init,
        world=World() if alone or world is None else world,
        ends=settings.ends,
        autosave=settings.autosave,
        every=settings.every,
    )


def _last_own(pipe: Pipe[Any]) -> Pipe[Any] | None:
    """The last object of the user's behind a shard point, unless what stands before can be read only once."""
    node = pipe
    while not isinstance(node.op, UserStream) or node.op.consumer:
        if len(node.inputs) != 1 or isinstance(node.op, Sharding):
            return None
        node = node.inputs[0]
    marks = [n for n in node.nodes() if isinstance(n.op, Sharding)]
    shared = marks and all(type(n.op) is Sharding and not any(map(_once, n.nodes())) for n in marks)
    return node if shared else None


def _once(node: Pipe[Any]) -> bool:
    return isinstance(node.op, WrappedIterable) and isinstance(node.op.data, Iterator)


def _marked_late(pipe: Pipe[Any]) -> Pipe[Any]:
    """The same line of ops, with its shard point as far back as samples can be had by position.

    So batches are those of the whole stream, not of each copy's share of it.
    """
    line = [pipe]
    while len(line[-1].inputs) == 1 and not isinstance(line[-1].op, Sharding):
        line.append(line[-1].inputs[0])
    if not isinstance(line[-1].op, Sharding):
        return pipe
    mark, *rest = line[::-1]
    late = mark.inputs[0]
    while (grown := Pipe(rest[0].op, late)).indexed(0, 0) is not None:
        late, rest = grown, rest[1:]
    late = Pipe(mark.op, late)
    for node in rest:
        late = Pipe(node.op, late)
    return late


class Iterated:
    """What a service of the user's returned instead of a graph: iterated as it is, in this process.

    It has the methods of a Loader that DataLoader2 calls. It resumes by reading again.
    """

    def __init__(self, iterable: object) -> None:
        self._iterable: Any = iterable
        self._read = self._skip = 0
        self.epoch = 0

    def __iter__(self) -> Iterator[Any]:
        self.epoch += 1
        self._read, skip, self._skip = 0, self._skip, 0
        samples = _Counted(iter(self._iterable), self)
        for _ in range(skip):
            next(samples)
        return samples

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def state_dict(self) -> dict[str, Any]:
        return {"read": self._read, "epoch": self.epoch - 1}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if not isinstance(state, dict) or not isinstance(state.get("read"), int):
            raise SnapshotRefused("this state was taken with a reading service that iterates a graph")
        self._skip, self.epoch = state["read"], state["epoch"]

    resumed = None

    def close(self) -> None:
        pass

    def __len__(self) -> int:
        return len(self._iterable)

    def mask(self) -> list[bool] | None:
        return None


class _Counted(Iterator[Any]):
    """The user's iterator, counted; whatever else it has is had of it."""

    def __init__(self, samples: Iterator[Any], told: Iterated) -> None:
        self._samples = samples
        self._told = told

    def __next__(self) -> Any:
        sample = next(self._samples)
        self._told._read += 1
        return sample

    def __getattr__(self, name: str) -> Any:
        return getattr(self._samples, name)
