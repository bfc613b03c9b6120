"""The loader of a DataLoader2: a graph and the settings of its services, as a `Loader`.

    exact         a shard point says where work is divided: among ranks and workers, by the engine's arithmetic
    strands       an object of the user's behind a shard point sees a stream, so it runs in workers as a fixed number of
                  copies of the graph, each with its share of what the shard point lets through; their samples come in
                  turn. A stream before the shard point is read once in each worker (`shared_streams`). In process it is
                  one copy, as it is without a loader
    per-worker    as many copies of the whole graph as there are workers

Under ranks, a graph without a shard point is run whole by every rank, and ranks meet at `fullsync`: see
`fullsync.FullSyncVote`.
"""

import warnings
from collections.abc import Iterator
from typing import Any

from headrace.doors.dataloader2.services import ReadSettings
from headrace.doors.dataloader2.workers import GraphCopies, WorkerInit, WorkerReset, with_reset
from headrace.doors.datapipes.fullsync import with_votes
from headrace.doors.datapipes.graph import lint
from headrace.doors.datapipes.iter import MapToIterConverter
from headrace.doors.datapipes.lowering import clone, lowered
from headrace.doors.datapipes.nodes import is_pipe, is_table
from headrace.doors.datapipes.user import UserStream
from headrace.doors.datapipes.verbs import wrap
from headrace.engine.policy import Policy
from headrace.engine.wire.words import WITHOUT_SKIPS, Words
from headrace.errors import SnapshotRefused
from headrace.loader import Loader
from headrace.ops.order.sharding import Sharding
from headrace.ops.shape.same import Dispatch, FullSync
from headrace.pipe.graph import Pipe, rebuilt
from headrace.plan.world import World
from headrace.sources.wrapped import WrappedIterable
from headrace.tracebacks import users_line

WORDS = Words(
    there="make it where it is used (for example in the function of a map), or use "
    "MultiProcessingReadingService(multiprocessing_context='fork')",
    others=(*WITHOUT_SKIPS, ("look at it with workers=0", "look at it without a reading service")),
)


def copied(datapipe: Any) -> Any:
    """A copy of the user's graph; other data as a graph."""
    if is_table(datapipe):
        datapipe = MapToIterConverter(datapipe)
    return clone(datapipe) if is_pipe(datapipe) else wrap(datapipe, deepcopy=False)


def build(graph: object, settings: ReadSettings) -> Loader[Any]:
    """The loader that runs a graph."""
    if settings.sharding == "exact":
        for text in lint(graph, settings.workers):
            warnings.warn(text, stacklevel=users_line())
    pipe, world, seed = lowered(graph), settings.world, 0
    divided = _has(pipe, Sharding)
    # What stands before a dispatch runs once: work is divided there, and not by copies.
    per_worker = settings.sharding == "per-worker" and settings.workers > 0 and not _has(pipe, Dispatch)
    if settings.reset is not None and settings.workers and not per_worker:
        pipe = with_reset(pipe, WorkerReset(settings.reset, graph, settings.workers))
    # Where a graph is divided by copies, those of all ranks together divide it.
    share = (world.share_rank, world.share_ranks) if world is not None and divided else (0, 1)
    strands = init = None
    if per_worker:
        strands, divided = settings.workers, False
        changes = settings.init is not None or settings.reset is not None
        copies = Pipe(GraphCopies(graph if changes else pipe, settings.init, settings.reset, share))
        # Ranks meet behind the copies, not in them.
        pipe = Pipe(pipe.op, copies) if isinstance(pipe.op, FullSync) else copies
    elif (last := _last_user_stream(pipe)) is not None:
        strands, divided = settings.strands, False
        copies = Pipe(GraphCopies(_sharded_late(last), share=share, workers=max(1, settings.workers)))
        pipe = rebuilt(pipe, lambda node, below: copies if node is last else Pipe(node.op, *below))[id(pipe)]
    if settings.workers and settings.kind == "process" and not per_worker:
        init = WorkerInit(settings.init, graph, settings.workers)
    if world is not None and not divided:  # every rank reads a stream of its own
        pipe = with_votes(pipe)
        # A state of a rank's own stream is of no use to another rank, and is refused there.
        seed = world.rank if share == (0, 1) else 0
        world = None
    policy = Policy(
        workers=settings.workers,
        kind=settings.kind,
        start_method=settings.start_method,
        prefetch=settings.prefetch,
        window=settings.window,
        worker_init=init,
    )
    return Loader.of(
        pipe,
        policy,
        seed=seed,
        strands=strands,
        world=World() if world is None else world,
        ends=settings.ends,
        autosave=settings.autosave,
    )


def _has(pipe: Pipe[Any], kind: type) -> bool:
    return any(isinstance(node.op, kind) for node in pipe.nodes())


def _last_user_stream(pipe: Pipe[Any]) -> Pipe[Any] | None:
    """The last object of the user's behind shard points, or None if there is none or if it cannot run in copies.

    It cannot where a stream before the shard point is an iterator, which is read only once, nor where something reaches
    it that no shard point divides: every copy would get all of that.
    """
    node = pipe
    while not isinstance(node.op, UserStream) or node.op.consumer:
        if len(node.inputs) != 1 or isinstance(node.op, Sharding):
            return None
        node = node.inputs[0]
    points = [n for n in node.nodes() if isinstance(n.op, Sharding)]
    shared = _is_divided(node) and all(
        type(n.op) is Sharding and not any(map(_is_single_use, n.nodes())) for n in points
    )
    return node if shared else None


def _is_divided(node: Pipe[Any]) -> bool:
    """Whether a shard point lies on every way from a source to here."""
    return isinstance(node.op, Sharding) or (bool(node.inputs) and all(map(_is_divided, node.inputs)))


def _is_single_use(node: Pipe[Any]) -> bool:
    return isinstance(node.op, WrappedIterable) and isinstance(node.op.data, Iterator)


def _sharded_late(pipe: Pipe[Any]) -> Pipe[Any]:
    """The same line of ops, with its shard point as far back as samples can be had by position.

    So batches are those of the whole stream, not of each copy's share of it.
    """
    line = [pipe]
    while len(line[-1].inputs) == 1 and not isinstance(line[-1].op, Sharding):
        line.append(line[-1].inputs[0])
    if not isinstance(line[-1].op, Sharding):
        return pipe
    point, *rest = [node.op for node in line[::-1]]
    late = line[-1].inputs[0]
    while (grown := Pipe(rest[0], late)).indexed(0, 0) is not None:
        late, rest = grown, rest[1:]
    for op in (point, *rest):
        late = Pipe(op, late)
    return late


class IterableLoader:
    """What a service of the user's returned instead of a graph: any iterable, iterated as it is, in this process.

    It has the methods of a Loader that DataLoader2 calls. It resumes by reading from the start and dropping samples.
    """

    def __init__(self, iterable: object) -> None:
        self._iterable: Any = iterable
        self._read = self._skip = 0
        self._ended = False
        self.epoch = 0

    def __iter__(self) -> Iterator[Any]:
        self.epoch += 1
        self._read, skip, self._skip, self._ended = 0, self._skip, 0, False
        samples = _CountedIterator(iter(self._iterable), self)
        for _ in range(skip):
            next(samples)
        return samples

    def set_epoch(self, epoch: int) -> None:
        """The next epoch is this one, from its start."""
        self.epoch, self._skip = epoch, 0

    def state_dict(self) -> dict[str, Any]:
        return {"read": 0, "epoch": self.epoch} if self._ended else {"read": self._read, "epoch": self.epoch - 1}

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


class _CountedIterator(Iterator[Any]):
    """The user's iterator, which counts what is read; other attributes are those of the user's iterator."""

    def __init__(self, samples: Iterator[Any], loader: IterableLoader) -> None:
        self._samples = samples
        self._loader = loader

    def __next__(self) -> Any:
        try:
            sample = next(self._samples)
        except StopIteration:
            self._loader._ended = True
            raise
        self._loader._read += 1
        return sample

    def __getattr__(self, name: str) -> Any:
        return getattr(self._samples, name)
