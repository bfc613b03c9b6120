"""The Ray cluster: the connection to it, what there is room for, and who is placed where.

The cluster is the one this process is connected to. If it is connected to none, Ray looks for one (`RAY_ADDRESS`) or
starts one on this machine, and that connection ends when its last user leaves.
"""

import logging
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.engine.workers.deaths import At
from headrace.engine.workers.ray import actor as ray_actor
from headrace.engine.workers.ray.answers import RayTicket
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
"""Seconds for the watcher, or for a stack."""
STORE_SHARE = 3
"""Tickets under way take at most one part in so many of a node's object store."""
LOST_WITH_NODE = "was lost with its node"
_lock = threading.Lock()
_users = 0
_ours = False


def join() -> None:
    """Be connected until `leave`."""
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
    """The bytes in the store, as an array: nodes map it, where they would copy bytes."""
    return ray.put(np.frombuffer(data, np.uint8))


def free_cores() -> int:
    return int(ray.available_resources().get("CPU", 0))


def worker(cores: int) -> Any:
    """A new actor, wherever the least is going on."""
    kind = ray.remote(ray_actor.actor())
    return kind.options(num_cpus=cores, scheduling_strategy="SPREAD").remote(sys.path)


def here() -> str:
    """The consumer's own node."""
    return str(ray.get_runtime_context().get_node_id())


def watcher() -> Any:
    """A watcher, on the consumer's own node: where it goes, the consumer goes too."""
    return ray.remote(ray_actor.watcher()).options(num_cpus=0, scheduling_strategy=_on(here())).remote()


def last_seen(by: Any, seq: int) -> At | None:
    """Where a ticket was when it told last, if there was anybody to tell."""
    try:
        told = None if by is None else ray.get(by.last.remote(seq), timeout=ANSWER)
    except ray.exceptions.RayError:
        return None
    return None if told is None else At(*told)


def answer_before_end(ref: object) -> Any:
    """The answer of a call to an actor that is dead now, if there is one."""
    try:
        return ray.get(ref) if ray.wait([ref], timeout=0)[0] else None
    except ray.exceptions.RayError:
        return None


def remake(actor: Any, made: Recipe, inputs: list[Any]) -> Any:
    """Where the samples will be that this recipe makes."""
    wire = RayTicket(0, made.stage, made.epoch, made.number, made.payload, made.avoid, None)
    if made.strand:
        return actor.remake.remote(wire, made.count)
    return actor.keep.options(num_returns=2).remote(wire, *inputs)[1]


def stack_of(node: str, pid: int, dump: int) -> str:
    """The stack of a process on a node."""
    task = ray.remote(ray_actor.stack_reader()).options(num_cpus=0, scheduling_strategy=_on(node))
    try:
        return str(ray.get(task.remote(sys.path, pid, dump), timeout=ANSWER))
    except ray.exceptions.RayError as error:
        return f"no answer from node {node}: {error}"


def end(actors: list[Any]) -> None:
    # Not after the connection has ended: Ray would make a new one to kill with.
    if ray.is_initialized():
        for actor in actors:
            ray.kill(actor)


def loss(error: Any) -> Any:
    """What was lost, an actor or an object; any other error is raised."""
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
