"""What MultiProcessingReadingService does inside workers.

worker_init_fn    once in each worker, before its first sample
worker_reset_fn   in each worker, before its first sample of each epoch: an op at the head of the worker's part notices
per-worker        every worker runs the whole graph on its own share, and the results come in turn from each
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from headrace.doors.dataloader2.seeds import SeedGenerator
from headrace.doors.dataloader2.shared_streams import SharedStream, StreamShard
from headrace.doors.datapipes.graph import list_dps, traverse_dps
from headrace.doors.datapipes.lowering import SeededOpening, lowered
from headrace.errors import BadPipe
from headrace.op import Each, Here, Source, place
from headrace.ops.order.sharding import Shard, Sharding
from headrace.pipe.graph import Pipe, rebuilt
from headrace.plan.seed import key, seed_globals

STATE_EVERY = 1000
"""Samples after which a copy says where it stands."""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """Which worker this is."""

    num_workers: int
    worker_id: int


WorkerInitFn = Callable[[Any, WorkerInfo], Any]
WorkerResetFn = Callable[[Any, WorkerInfo, SeedGenerator], Any]
"""Functions of the user's: they get the graph, and may return another."""


class _Worker:
    """The worker that this process is."""

    number = 0


@dataclass(frozen=True, slots=True, eq=False)
class WorkerInit:
    """Runs in each worker when it starts."""

    fn: WorkerInitFn | None
    pipe: Any
    workers: int

    def __call__(self, number: int) -> None:
        _Worker.number = number
        if self.fn is not None:
            call_on_graph(self.fn, "worker_init_fn", self.pipe, WorkerInfo(self.workers, number))


@dataclass(frozen=True, slots=True, eq=False)
class WorkerReset(Each[Any, Any]):
    """Calls the user's function at the first sample of an epoch in each worker."""

    fn: WorkerResetFn
    pipe: Any
    workers: int
    begun: list[int] = field(default_factory=list, repr=False)
    """The epoch that this process has begun, if any: it does not travel."""
    user = True

    def apply(self, sample: object) -> Any:
        here = place.spot.here
        epoch = 0 if here is None else here.epoch
        if self.begun[-1:] != [epoch]:
            self.begun[:] = [epoch]
            seeds = SeedGenerator(key(epoch, "reset")).spawn(_Worker.number)
            info = WorkerInfo(self.workers, _Worker.number)
            call_on_graph(self.fn, "worker_reset_fn", self.pipe, info, seeds)
        return sample

    def __reduce__(self) -> tuple[Any, ...]:
        return WorkerReset, (self.fn, self.pipe, self.workers)


def with_reset(pipe: Pipe[Any], op: WorkerReset) -> Pipe[Any]:
    """The graph with the op wherever a worker's part of the work begins: after each source and each shard point."""

    def make(node: Pipe[Any], below: list[Pipe[Any]]) -> Pipe[Any]:
        grown = Pipe(node.op, *below)
        return Pipe(op, grown) if not below or isinstance(node.op, Sharding) else grown

    return rebuilt(pipe, make)[id(pipe)]


class GraphChanged(BadPipe):
    """A function of the user's wants each worker to run a graph of its own."""


def call_on_graph(fn: Callable[..., Any], name: str, pipe: object, *more: object) -> None:
    """Call a function of the user's that may look at the graph; GraphChanged if it changes it or returns another."""
    before = _contents(pipe)
    returned = fn(pipe, *more)
    if (returned is not None and returned is not pipe) or _contents(pipe) != before:
        raise GraphChanged(
            f"{name} changed the graph or returned another, but the work of one graph is divided among the workers: "
            "change it with datapipe_adapter_fn, or ask for a whole graph per worker with sharding='per-worker'"
        )


def _contents(pipe: object) -> dict[tuple[int, str], Any]:
    """The ids of what every node of a graph holds, also in its containers, by node and attribute."""
    return {
        (id(node), name): (id(value), *(map(id, value) if isinstance(value, list | tuple | set | dict) else ()))
        for node in list_dps(traverse_dps(pipe))
        for name, value in getattr(node, "__dict__", {}).items()
    }


# --- a whole graph per worker -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class GraphCopies(Source[Any]):
    """The graph once per strand, each on its own share: what stands before a shard point is the same in all of them."""

    pipe: Any
    """Plain; if the user's functions are to change it, the graph as the user wrote it."""
    init: WorkerInitFn | None = None
    reset: WorkerResetFn | None = None
    share: tuple[int, int] = (0, 1)
    """This rank and how many ranks there are: each copy takes every (copies x ranks)-th sample."""
    workers: int | None = None
    """Copy c runs in worker c modulo workers, and reads streams together with the other copies there (see
    `shared_streams`). None: one copy in each worker."""
    initialized: dict[int, Any] = field(default_factory=dict, repr=False)
    """What worker_init_fn made of the graph, by worker; this and what follows do not travel."""
    streams: dict[int, SharedStream] = field(default_factory=dict, repr=False)
    ops: dict[int, str] = field(default_factory=dict, repr=False)
    """The description of each op at work in this process, by the id of its `Here`."""
    user = True
    divides = True

    def flow(self, here: Here) -> Iterator[Any]:
        hand_seeds: dict[int, int] = {}
        pipe = self._changed(here, hand_seeds)
        number = self._copy_number(here.strand, here.strands)
        nodes = self._sharded(pipe, here.strands, number)
        copy = nodes[id(pipe)]
        opening = _CopyOpening(copy, here, {id(nodes[i]): seed for i, seed in hand_seeds.items()}, number, self.ops)
        cursor = opening.open(copy, here.note)
        try:
            for emitted, sample in enumerate(cursor, 1):
                yield sample
                if emitted % STATE_EVERY == 0:
                    here.rest(cursor.state())
        except Exception as error:
            error.add_note(f"headrace: in {opening.at_work()}, in copy {here.strand} of {here.strands}")
            raise

    def _changed(self, here: Here, hand_seeds: dict[int, int]) -> Pipe[Any]:
        """The graph after the user's functions for this worker have changed it."""
        if self.init is None and self.reset is None:
            return self.pipe  # type: ignore[no-any-return]
        info = WorkerInfo(here.strands, here.strand)
        changed = self.initialized.get(here.strand)
        if changed is None:
            changed = (self.init(self.pipe, info) if self.init is not None else None) or self.pipe
            self.initialized[here.strand] = changed
        if self.reset is not None:
            changed = self.reset(changed, info, SeedGenerator(here.seed).spawn(here.strand)) or changed
        return lowered(changed, hand_seeds)

    def _copy_number(self, strand: int, strands: int) -> int:
        """The number of this rank's copy `strand` among the copies of all ranks.

        One copy per worker is counted as TorchData counts, rank by rank; else ranks come in turn, so that they get
        equally many samples.
        """
        rank, ranks = self.share
        return rank * strands + strand if self.workers is None else strand * ranks + rank

    def _sharded(self, pipe: Pipe[Any], strands: int, number: int) -> dict[int, Pipe[Any]]:
        """The graph with every shard point as a filter: the new nodes, by the ids of the old ones."""
        ordinals = pipe.ordinals()
        count = strands * self.share[1]
        here = range(_Worker.number, strands, self.workers or strands)
        copies = frozenset(self._copy_number(strand, strands) for strand in here)

        def make(node: Pipe[Any], below: list[Pipe[Any]]) -> Pipe[Any]:
            if not isinstance(node.op, Sharding):
                return Pipe(node.op, *below)
            if self.workers is None or node.indexed(0, 0) is not None:
                return Pipe(Shard(count, number), *below)
            return Pipe(StreamShard(count, number, ordinals[id(node)], copies, self.streams), *below)

        return rebuilt(pipe, make)

    def __reduce__(self) -> tuple[Any, ...]:
        return GraphCopies, (self.pipe, self.init, self.reset, self.share, self.workers)

    def describe(self) -> str:
        return f"one copy per worker of {self.pipe!r}"

    def identity(self) -> tuple[Any, ...]:
        return ("replicas", *self.share, *self.pipe.fingerprint())


class _CopyOpening(SeededOpening):
    """An opened copy: before a shard point the seeds are those of all copies, after it the copy has its own."""

    def __init__(
        self, copy: Pipe[Any], here: Here, hand_seeds: dict[int, int], number: int, ops: dict[int, str]
    ) -> None:
        super().__init__(hand_seeds, copy.ordinals(), here.seed, here.epoch, seed_globals=seed_globals, spot=here.spot)
        shards = [node for node in copy.nodes() if isinstance(node.op, Shard | StreamShard)]
        self._shared = {id(node) for shard in shards for node in shard.nodes()}
        self._number = number
        self._ordinal = here.ordinal
        self._ops = ops

    def enter(self, epoch: int) -> None:
        super().enter(epoch)
        self.seed = key(epoch, self._ordinal)  # the seed so far was that of another epoch

    def at_work(self) -> str:
        """The op that is at work now, in words."""
        return self._ops.get(id(self.spot.here), "the graph")

    def here(self, node: Pipe[Any], turn: int = 0, paired: bool = False) -> Here:
        here = super().here(node, turn, paired)
        self._ops[id(here)] = node.op.describe()
        here.ordinal = self._ordinal  # to the engine the whole graph is one op
        if id(node) not in self._shared and id(node) not in self.hand_seeds:
            here.seed = key(here.seed, "worker", self._number)
        return here
