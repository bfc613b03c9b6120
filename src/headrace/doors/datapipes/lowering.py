"""Lowering: a graph of DataPipes as plain Pipes, which the engine runs.

A user object becomes an op, which runs a copy of the object with its pipes replaced by what they deliver. So the user's
object itself never changes, and any number of iterators may read the same graph.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from headrace.doors.datapipes.fullsync import FullSyncVote
from headrace.doors.datapipes.nodes import (
    READS_BY_ITSELF,
    DataPipe,
    TorchPipe,
    is_table,
    is_user_object,
    sources_of,
    streams_of,
)
from headrace.doors.datapipes.user import Placeholder, UserStream, UserTable, by_id, relink, relinked
from headrace.doors.torch.datapipes import drawn_seed
from headrace.op import Here, Op
from headrace.ops.branch.mix import Mix
from headrace.ops.branch.mux import SampleMux
from headrace.ops.order.sharding import Sharding
from headrace.ops.order.shuffle import InBatchShuffle, Shuffle
from headrace.ops.shape.same import FullSync
from headrace.ops.shape.shuffled_flatmap import ShuffledFlatmap
from headrace.pipe.cursor import Opening, PipeCursor
from headrace.pipe.graph import Pipe
from headrace.plan.seed import key
from headrace.sources.table import CachedTable
from headrace.sources.wrapped import WrappedIterable

Memo = dict[int, Pipe[Any] | None]
RANDOM = (InBatchShuffle, Mix, SampleMux, Shuffle, ShuffledFlatmap)
"""Ops whose order is random."""


def lowered(
    node: Any, hand_seeds: dict[int, int] | None = None, memo: Memo | None = None, loaded: bool = True
) -> Pipe[Any]:
    """The same graph as plain pipes, for a loader or (`loaded` is False) to be iterated as it is.

    `hand_seeds`, if given, collects the seeds that nodes were given by hand: each once.
    """
    memo = {} if memo is None else memo
    done = memo.get(id(node))
    if done is not None:
        return done
    if isinstance(node, TorchPipe):
        return lowered(node.pipe, hand_seeds, memo, loaded)
    memo[id(node)] = None
    streams = () if is_table(node) and is_user_object(node) else streams_of(node)
    # A cycle ends here: the user's object keeps the pipe that leads back to itself.
    streams = tuple(s for s in streams if id(s) not in memo or memo[id(s)] is not None)
    below = [] if _branches(node) else [lowered(source, hand_seeds, memo, loaded) for source in streams]
    if is_user_object(node):
        plain = Pipe(user_op(node, streams, seeded=loaded), *below)
    elif not isinstance(node, DataPipe):
        plain = node if all(a is b for a, b in zip(below, streams, strict=True)) else Pipe(node.op, *below)
    else:
        op: Any = op_of(node)
        if not loaded and isinstance(op, FullSync):
            op = FullSyncVote(op.timeout)
        field = READS_BY_ITSELF.get(type(op))
        plain = Pipe(op, *below) if field is None else Pipe(replace(op, **{field: below[0]}))
        if isinstance(op, CachedTable):
            # It gives every sample that it is asked for, so a shard point before it has to divide behind it.
            for point in (n.op for n in below[0].nodes() if isinstance(n.op, Sharding)):
                plain = Pipe(point, plain)
    if hand_seeds is not None and isinstance(node, DataPipe) and "_hand_set_seed" in node.__dict__:
        hand_seeds[id(plain)] = node.__dict__.pop("_hand_set_seed")
    memo[id(node)] = plain
    return plain


def op_of(node: Any) -> Op[Any, Any]:
    """What a node does to its inputs."""
    if is_user_object(node):
        return user_op(node, streams_of(node), seeded=True)
    return node.current_op(node._built)  # type: ignore[no-any-return]


def user_op(node: Any, streams: tuple[Pipe[Any], ...], seeded: bool) -> Op[Any, Any]:
    """A user object, of our classes or of torch's, as an op."""
    if is_table(node):
        return UserTable(node)
    if _branches(node):
        return WrappedIterable(node, deepcopy=False)
    if is_torchs_shard(node) and not node.groups:
        return Sharding(node.sharding_group_filter)
    placeholders = {id(source): Placeholder(i) for i, source in enumerate(streams)}
    replicable = getattr(node, "is_replicable", None)
    stays = callable(replicable) and not replicable()
    return UserStream(relinked(node, by_id(placeholders)), len(streams), seeded, consumer=stays)


def is_torchs_shard(node: object) -> bool:
    """Whether a node is torch's own sharding_filter."""
    return type(node).__name__ == "ShardingFilterIterDataPipe" and not isinstance(node, DataPipe)


def _branches(node: object) -> bool:
    """Whether a node is one of several that torch's fork or demux made: they work only together, on their own graph."""
    return not isinstance(node, Pipe) and hasattr(node, "main_datapipe") and hasattr(node, "instance_id")


def opened(node: DataPipe[Any]) -> Iterator[Any]:
    """The samples of a graph that is iterated without a loader."""
    hand_seeds: dict[int, int] = {}
    pipe = lowered(node, hand_seeds, loaded=False)
    random = [n for n in pipe.nodes() if isinstance(n.op, RANDOM) and getattr(n.op, "seed", None) is None]
    number = None if all(id(n) in hand_seeds for n in random) else drawn_seed()
    if number is None:
        number = node.__dict__["_passes"] = node.__dict__.get("_passes", -1) + 1
    # The number is in the place of a loader's epoch, so each pass has a new order.
    return PipeCursor(SeededOpening(hand_seeds, pipe.ordinals(), 0, number), pipe, None, 0)


class SeededOpening(Opening):
    """An opened graph in which the user set the seeds of some nodes by hand: `hand_seeds`, by the nodes' ids."""

    def __init__(self, hand_seeds: dict[int, int], *about: Any, **more: Any) -> None:
        super().__init__(*about, **more)
        self.hand_seeds = hand_seeds

    def here(self, node: Pipe[Any], turn: int = 0, paired: bool = False) -> Here:
        here = super().here(node, turn, paired)
        if id(node) in self.hand_seeds:
            here.seed = key(self.hand_seeds[id(node)], "told", turn)
        return here


def clone(node: Any, memo: dict[int, Any] | None = None) -> Any:
    """A copy of the graph, node by node; what the nodes hold besides pipes is shared."""
    memo = {} if memo is None else memo
    if id(node) not in memo:
        if is_user_object(node) or isinstance(node, DataPipe):
            memo[id(node)] = relinked(node, by_id({}))
            relink(memo[id(node)], by_id({id(source): clone(source, memo) for source in sources_of(node)}))
        else:
            memo[id(node)] = Pipe(node.op, *[clone(source, memo) for source in node.inputs])
    return memo[id(node)]
