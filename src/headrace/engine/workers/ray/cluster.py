"""The Ray cluster: the connection to it, what there is room for, and which actor is placed where.

The cluster is the one this process is connected to. If it is connected to none, Ray looks for one (`RAY_ADDRESS`) or
starts one on this machine, and that connection ends when its last user leaves.
"""

import logging
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.engine.workers.deaths import DeathPlace
from headrace.engine.workers.ray import actor as ray_actor
from headrace.engine.workers.ray.lineage import Recipe
from headrace.errors import missing

if TYPE_CHECKING:
    ray: Any  # whether it is installed, and how it is typed there, is the same to the checker
else:
    try:
        import ray
        import ray.exceptions
        import ray.util.scheduling_strategies
    except ModuleNotFoundError as absent:
        if absent.name != "ray":
            raise
        raise missing("ray", "ray") from None

ANSWER = 10.0
"""Seconds to wait for an answer of the watcher, or for a stack."""
STORE_SHARE = 3
"""Tickets under way take at most one third of a node's object store."""
LOST_WITH_NODE = "was lost with its node"
_lock = threading.Lock()
_users = 0
_ours = False


def join() -> None:
    """Connect to a cluster, if this process is not connected, until `leave` was called as often."""
    global _users, _ours
    with _lock:
        if not ray.is_initialized():
            ray.init(include_dashboard=False, logging_level=logging.WARNING)
            _ours = True
        _users += 1


def leave() -> None:
    global _users, _ours
    with _lock:
        _users -= 1
        if _users == 0 and _ours:
            _ours = False
            ray.shutdown()


def store() -> int:
    """Bytes that may be under way in the object store of any node."""
    sizes = [int(node["Resources"].get("object_store_memory", 0)) for node in ray.nodes() if node["Alive"]]
    return min((size for size in sizes if size), default=sys.maxsize) // STORE_SHARE


def put(data: bytes) -> Any:
    """Put bytes into the store, as an array: nodes map an array, and would copy bytes."""
    return ray.put(np.frombuffer(data, np.uint8))


def free_cores() -> int:
    return int(ray.available_resources().get("CPU", 0))


def worker(cores: int) -> Any:
    """A new actor, on the node that has the least to do."""
    kind = ray.remote(ray_actor.actor())
    return kind.options(num_cpus=cores, scheduling_strategy="SPREAD").remote(sys.path)


def here() -> str:
    """The id of the consumer's node."""
    return str(ray.get_runtime_context().get_node_id())


def watcher() -> Any:
    """A watcher, on the consumer's node, so that it is lost only if the consumer is."""
    return ray.remote(ray_actor.watcher()).options(num_cpus=0, scheduling_strategy=_on(here())).remote()


def last_seen(by: Any, seq: int) -> DeathPlace | None:
    """The position that a ticket reported last to this watcher, if there is one and it knows."""
    try:
        reported = None if by is None else ray.get(by.last.remote(seq), timeout=ANSWER)
    except ray.exceptions.RayError:
        return None
    return None if reported is None else DeathPlace(*reported)


def answer_before_end(ref: object) -> Any:
    """The answer that a dead actor gave to a call before its end, if it did."""
    try:
        return ray.get(ref) if ray.wait([ref], timeout=0)[0] else None
    except ray.exceptions.RayError:
        return None


def remake(actor: Any, recipe: Recipe, inputs: list[Any]) -> Any:
    """Have an actor make lost samples again: the reference to where they will be."""
    if recipe.count is not None:
        return actor.remake.remote(recipe.ticket, recipe.count)
    return actor.keep.options(num_returns=2).remote(recipe.ticket, *inputs)[1]


def stack_of(node: str, pid: int, dump: int) -> str:
    """The stack of a process on a node."""
    task = ray.remote(ray_actor.stack_reader()).options(num_cpus=0, scheduling_strategy=_on(node))
    try:
        return str(ray.get(task.remote(sys.path, pid, dump), timeout=ANSWER))
    except ray.exceptions.RayError as error:
        return f"no answer from node {node}: {error}"


def end(actors: list[Any]) -> None:
    """Kill actors."""
    # Not after the connection has ended: Ray would make a new one to kill with.
    if ray.is_initialized():
        for actor in actors:
            ray.kill(actor)


def loss(error: Any) -> Any:
    """The error that says which actor or object was lost; any other error is raised."""
    cause = error.cause if isinstance(error, ray.exceptions.RayTaskError) else error
    if not isinstance(cause, (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError)):
        raise error
    return cause


def is_end_of(actor: Any, error: Any) -> bool:
    """Whether the error says that this actor is gone."""
    return bool(getattr(error, "actor_id", None) == actor._actor_id.hex())


def describe_end(error: Exception) -> str:
    """How an actor ended, in words."""
    text = str(error)
    if "node has died" in text or "node was terminated" in text or isinstance(error, ray.exceptions.ObjectLostError):
        return LOST_WITH_NODE
    _, found, detail = text.partition("exit detail: ")
    why = detail.partition(". ")[0] if found else text.strip().rpartition("\n")[2].strip().rstrip(".")
    return f"ended ({why})"


def _on(node: str) -> Any:
    return ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
