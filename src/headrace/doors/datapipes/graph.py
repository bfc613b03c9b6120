"""Functions over a graph of pipes: look at it, search it, change it, seed it, check it.

A graph is written as nested dicts, `{id(pipe): (pipe, graph of its sources)}`, with one pipe at the top. A pipe that
feeds two others appears below both; a cycle is cut where it comes back. `replace_dp` and `remove_dp` change the pipes
themselves (DataLoader2 works on a copy of the user's graph).
"""

import inspect
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from headrace.doors.datapipes.iter import ShardingFilter
from headrace.doors.datapipes.nodes import DataPipe, built_op, is_pipe, is_user_object, sources_of
from headrace.doors.datapipes.user import by_id, relink
from headrace.ops.order.sharding import Sharding
from headrace.ops.order.shuffle import Shuffle
from headrace.pipe.graph import Pipe

Graph = dict[int, tuple[Pipe[Any], Any]]
__all__ = [
    "apply_sharding",
    "find_dps",
    "lint",
    "list_dps",
    "remove_dp",
    "replace_dp",
    "set_datapipes_seed",
    "set_graph_random_seed",
    "shuffled_before_sharding",
    "traverse_dps",
]


def traverse_dps(datapipe: Any) -> Graph:
    """The graph that ends in this pipe."""
    if not is_pipe(datapipe):
        raise RuntimeError(f"Expected `IterDataPipe` or `MapDataPipe`, but {type(datapipe)} is found")
    return _graph(datapipe, frozenset())


def _graph(node: Pipe[Any], above: frozenset[int]) -> Graph:
    below: Graph = {}
    for source in sources_of(node):
        if id(source) not in above and source is not node:
            below.update(_graph(source, above | {id(node)}))
    return {id(node): (node, below)}


def find_dps(graph: Graph, dp_type: type) -> list[Any]:
    """Every pipe of exactly this class, once, those nearest to the end first."""
    found: dict[int, Any] = {}

    def visit(part: Graph) -> None:
        for number, (node, below) in part.items():
            if type(node) is dp_type:
                found.setdefault(number, node)
            visit(below)

    visit(graph)
    return list(found.values())


def list_dps(graph: Graph, exclude_dps: object = None) -> list[Any]:
    """Every pipe once, from the end to the sources; `exclude_dps`, and all that feeds them, are left out."""
    out: set[int] = set()
    if exclude_dps is not None:
        for excluded in exclude_dps if isinstance(exclude_dps, Sequence) else [exclude_dps]:
            out |= {id(node) for node in list_dps(traverse_dps(excluded))}
    found: dict[int, Any] = {}
    waiting: deque[Graph] = deque([graph])
    while waiting:
        for number, (node, below) in waiting.popleft().items():
            if number not in out and number not in found:
                found[number] = node
            waiting.append(below)
    return list(found.values())


def replace_dp(graph: Graph, old_datapipe: object, new_datapipe: object) -> Graph:
    """Every pipe that `old_datapipe` feeds is fed by `new_datapipe` instead; the new graph."""
    top = _top(graph)
    if top is old_datapipe:
        return traverse_dps(new_datapipe)
    keep = {id(node) for node in list_dps(traverse_dps(new_datapipe))}
    for node in list_dps(graph):
        # The new pipe may itself be built on the old one.
        if id(node) not in keep and any(source is old_datapipe for source in sources_of(node)):
            _feed(node, old_datapipe, new_datapipe)
    return traverse_dps(top)


def remove_dp(graph: Graph, datapipe: object) -> Graph:
    """Every pipe that `datapipe` feeds is fed by its source instead; the new graph."""
    sources = sources_of(datapipe)
    if not sources:
        raise RuntimeError("Cannot remove the source DataPipe from the graph of DataPipe")
    if len(sources) > 1:
        raise RuntimeError("Cannot remove the receiving DataPipe having multiple sending DataPipes")
    return replace_dp(graph, datapipe, sources[0])


def _top(graph: Graph) -> Any:
    assert len(graph) == 1, f"a graph has one pipe at its end, not {len(graph)}"
    return next(iter(graph.values()))[0]


def _feed(node: Any, old: object, new: object) -> None:
    if not isinstance(node, DataPipe) and not is_user_object(node):
        raise TypeError(f"a plain Pipe does not change: build {node.op.describe()} with a class of headrace.datapipes")
    relink(node, by_id({id(old): new}))


# --- seeds and shards -------------------------------------------------------------------------------------------------


def set_datapipes_seed(datapipes: Iterable[Any], seed_generator: Any, distributed_shared: bool) -> None:
    """Give every random pipe among these a seed of its own."""
    for node in datapipes:
        if callable(getattr(node, "set_seed", None)):
            shared = seed_generator.generate_shared_seed if distributed_shared else seed_generator.generate_seed
            node.set_seed(shared())


def set_graph_random_seed(datapipe: object, seed_generator: object) -> Any:
    """Give every random pipe its seed: the same in all processes before a shard point, another in each after it."""
    graph = traverse_dps(datapipe)
    points = find_dps(graph, ShardingFilter)
    before = {id(node): node for point in points for node in list_dps(traverse_dps(point))}
    set_datapipes_seed(before.values(), seed_generator, distributed_shared=True)
    set_datapipes_seed(list_dps(graph, exclude_dps=points), seed_generator, distributed_shared=False)
    return datapipe


def apply_sharding(datapipe: object, num_of_instances: int, instance_id: int, sharding_group: int = 1) -> Any:
    """Give every shard point its share; one that feeds another would lose data and is refused."""

    def visit(part: Graph, above: object) -> None:
        node: Any
        for node, below in part.values():
            point = above
            if _takes_share(node):
                if above is not None:
                    raise RuntimeError(
                        "Sharding twice on a single pipeline is likely unintended and will cause data loss. "
                        f"Sharding already applied to {above!r} while trying to apply to {node!r}"
                    )
                point = node
                give_share(node, num_of_instances, instance_id, sharding_group)
            visit(below, point)

    visit(traverse_dps(datapipe), None)
    return datapipe


def give_share(node: Any, count: int, number: int, group: int) -> None:
    """Give a shard point its share; classes written for older versions of TorchData take no group."""
    takes_group = len(inspect.signature(node.apply_sharding).parameters) > 2
    node.apply_sharding(count, number, *([group] if takes_group else []))


def _takes_share(node: object) -> bool:
    return callable(getattr(node, "apply_sharding", None))


# --- shuffling, and what to look for ----------------------------------------------------------------------------------


def is_shuffle(node: object) -> bool:
    """Whether a pipe can be switched to deliver in the order of its source."""
    return callable(getattr(node, "set_shuffle", None)) and callable(getattr(node, "set_seed", None))


def is_shard_point(node: Any) -> bool:
    """Whether work is divided at this pipe."""
    return isinstance(built_op(node), Sharding) or _takes_share(node)


def shuffled_before_sharding(datapipe: object) -> bool:
    """Whether there is a shuffle between every source and every shard point that it feeds."""

    def shuffled(node: object) -> bool:
        sources = sources_of(node)
        return _shuffles(node) or (bool(sources) and all(map(shuffled, sources)))

    return all(shuffled(node) for node in list_dps(traverse_dps(datapipe)) if is_shard_point(node))


def _shuffles(node: Any) -> bool:
    """Whether a pipe changes the order of a whole stream; a shuffle inside batches is good in any place."""
    if is_user_object(node):
        return is_shuffle(node)
    return isinstance(built_op(node), Shuffle) and not getattr(node, "_off", False)


def lint(datapipe: object, workers: int) -> list[str]:
    """What is likely not meant, each with what to write instead."""
    found = []
    nodes = list_dps(traverse_dps(datapipe))
    points = [node for node in nodes if is_shard_point(node)]
    if workers > 1 and not points:
        found.append(
            f"the graph has no sharding_filter(): {workers} workers deliver each sample once all the same. "
            "Say where work is divided: put .sharding_filter() after .shuffle(); for a copy of the data per worker ask "
            "for MultiProcessingReadingService(..., sharding='per-worker')"
        )
    early = all(any(map(_shuffles, list_dps(traverse_dps(point)))) for point in points)
    if workers and any(map(_shuffles, nodes)) and not early:
        found.append(
            "a shuffle stands after sharding_filter(), where it sees only what the workers have made: "
            "put .shuffle() before .sharding_filter()"
        )
    return found
