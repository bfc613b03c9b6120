"""What MultiProcessingReadingService does inside workers.

worker_init_fn    once in each worker, before its first sample
worker_reset_fn   in each worker, before its first sample of each epoch: an op at the head of the worker's part notices
per-worker        every worker runs the whole graph on its own share, and the results come in turn from each
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from headrace.doors.dataloader2.heads import Heads, Tap
from headrace.doors.dataloader2.seeds import SeedGenerator
from headrace.doors.datapipes.fullsync import rewritten
from headrace.doors.datapipes.graph import list_dps, traverse_dps
from headrace.doors.datapipes.lowering import SeededOpening, lowered
from headrace.errors import BadPipe
from headrace.op import Each, Here, Source, place
from headrace.ops.order.sharding import Shard, Sharding
from headrace.pipe.graph import Pipe
from headrace.plan.seed import key, seed_globals

STATE_EVERY = 1000
"""How often a replica says where it stands."""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """Which worker this is."""

    num_workers: int
    worker_id: int


class _Worker:
    number = 0


@dataclass(frozen=True, slots=True, eq=False)
class WorkerInit:
    """Runs in each worker when it starts."""

    fn: Callable[[Any, WorkerInfo], Any] | None
    pipe: Any
    workers: int

    def __call__(self, number: int) -> None:
        _Worker.number = number
        if self.fn is not None:
            called(self.fn, "worker_init_fn", self.pipe, WorkerInfo(self.workers, number))


@dataclass(frozen=True, slots=True, eq=False)
class WorkerReset(Each[Any, Any]):
    """Calls the user's function at the first sample of an epoch in each worker."""

    fn: Callable[[Any, WorkerInfo, SeedGenerator], Any]
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
            called(self.fn, "worker_reset_fn", self.pipe, info, seeds)
        return sample

    def __reduce__(self) -> tuple[Any, ...]:
        return WorkerReset, (self.fn, self.pipe, self.workers)


def with_reset(pipe: Pipe[Any], op: WorkerReset) -> Pipe[Any]:
    """The graph with the op wherever a worker's part of the work begins: after each source and each shard point."""

    def make(node: Pipe[Any], below: list[Pipe[Any]]) -> Pipe[Any]:
        grown = Pipe(node.op, *below)
        return Pipe(op, grown) if not below or isinstance(node.op, Sharding) else grown

    return rewritten(pipe, make)[id(pipe)]


class AnotherGraph(BadPipe):
    """A function of the user's gives each worker a graph of its own."""


def called(fn: Callable[..., Any], name: str, pipe: object, *more: object) -> None:
    """Call a function of the user's that may look at the graph; one that changes it, or returns another, is told."""
    before = _contents(pipe)
    returned = fn(pipe, *more)
    if (returned is not None and returned is not pipe) or _contents(pipe) != before:
        raise AnotherGraph(
            f"{name} changed the graph or returned another, but the work of one graph is divided among the workers: "
            "change it with datapipe_adapter_fn, or ask for a whole graph per worker with sharding='per-worker'"
        )


def _contents(pipe: object) -> dict[tuple[int, str], Any]:
    """What every node of a graph holds, and what its containers hold."""
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
    init: Callable[[Any, WorkerInfo], Any] | None = None
    reset: Callable[[Any, WorkerInfo, SeedGenerator], Any] | None = None
    share: tuple[int, int] = (0, 1)
    """Of this rank: each of its copies takes every (copies x ranks)-th sample."""
    workers: int | None = None
    """Copy c runs in worker c modulo workers, and shares the reading of a stream with its neighbours there. None: every
    worker has one copy."""
    begun: dict[int, Any] = field(default_factory=dict, repr=False)
    """What worker_init_fn made of the graph, by worker; like the heads it does not travel."""
    heads: Heads = field(default_factory=Heads, repr=False)
    user = True

    def flow(self, here: Here) -> Iterator[Any]:
        told: dict[int, int] = {}
        pipe = self._changed(here, told)
        shared = _before_shards(pipe)
        number = self._number(here.strand, here.strands)
        mine, places = self._sharded(pipe, here.strands, number)
        moved = {places[i]: seed for i, seed in told.items()}
        opening = _CopyOpening(mine.ordinals(), here, moved, {places[i] for i in shared}, number, self.heads.ops)
        cursor = opening.open(mine, here.note)
        emitted = 0
        while True:
            try:
                sample = next(cursor)
            except StopIteration:
                return
            except Exception as error:
                error.add_note(f"headrace: in {opening.at_work()}, in copy {here.strand} of {here.strands}")
                raise
            yield sample
            emitted += 1
            if emitted % STATE_EVERY == 0:
                here.rest(cursor.state())

    def _changed(self, here: Here, told: dict[int, int]) -> Pipe[Any]:
        """The graph after the user's functions for this worker have changed it."""
        if self.init is None and self.reset is None:
            return self.pipe  # type: ignore[no-any-return]
        info = WorkerInfo(here.strands, here.strand)
        changed = self.begun.get(here.strand)
        if changed is None:
            changed = (self.init(self.pipe, info) if self.init is not None else None) or self.pipe
            self.begun[here.strand] = changed
        if self.reset is not None:
            changed = self.reset(changed, info, SeedGenerator(here.seed).spawn(here.strand)) or changed
        return lowered(changed, told)

    def _number(self, strand: int, strands: int) -> int:
        """Of a copy among those of all ranks. One per worker is counted as TorchData counts, rank by rank; else ranks
        come in turn, so that they get equally many samples."""
        rank, ranks = self.share
        return rank * strands + strand if self.workers is None else strand * ranks + rank

    def _sharded(self, pipe: Pipe[Any], strands: int, number: int) -> tuple[Pipe[Any], dict[int, int]]:
        """The graph with every shard point as a filter; where each node has gone."""
        ordinals = pipe.ordinals()
        count = strands * self.share[1]
        near = frozenset(self._number(s, strands) for s in range(_Worker.number, strands, self.workers or strands))

        def make(node: Pipe[Any], below: list[Pipe[Any]]) -> Pipe[Any]:
            if not isinstance(node.op, Sharding):
                return Pipe(node.op, *below)
            if self.workers is None or node.indexed(0, 0) is not None:
                return Pipe(Shard(count, number), *below)
            return Pipe(Tap(count, number, ordinals[id(node)], near, self.heads), *below)

        made = rewritten(pipe, make)
        return made[id(pipe)], {old: id(new) for old, new in made.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return GraphCopies, (self.pipe, self.init, self.reset, self.share, self.workers)

    def describe(self) -> str:
        return f"one copy per worker of {self.pipe!r}"

    def identity(self) -> tuple[Any, ...]:
        return ("replicas", *self.share, *self.pipe.fingerprint())


class _CopyOpening(SeededOpening):
    """Seeds that all copies share before a shard point, and a copy's own after it."""

    def __init__(
        self,
        ordinals: dict[int, int],
        here: Here,
        told: dict[int, int],
        shared: set[int],
        number: int,
        ops: dict[int, str],
    ) -> None:
        super().__init__(told, ordinals, here.seed, here.epoch, seed_globals=seed_globals, spot=here.spot)
        self._shared = shared
        self._number = number
        self._ordinal = here.ordinal
        self._ops = ops

    def at_work(self) -> str:
        """The op that is at work now, in words."""
        return self._ops.get(id(self.spot.here), "the graph")

    def here(self, node: Pipe[Any], turn: int = 0) -> Here:
        here = super().here(node, turn)
        self._ops[id(here)] = node.op.describe()
        here.ordinal = self._ordinal  # to the engine the whole graph is one op
        if id(node) not in self._shared and id(node) not in self.told:
            here.seed = key(here.seed, "worker", self._number)
        return here


def _before_shards(pipe: Pipe[Any]) -> set[int]:
    """The ids of every node at or before a shard point."""
    return {id(n) for node in pipe.nodes() if isinstance(node.op, Shard | Sharding) for n in node.nodes()}
