"""The World of a torch DeviceMesh: ranks that differ only in tensor or pipeline dimensions get the same samples.

    mesh = init_device_mesh("cuda", (2, 4, 8), mesh_dim_names=("pp", "dp", "tp"))
    Loader(pipe, world=mesh)              data is shared along "dp": 4 shares, 16 ranks receive each
    Loader(pipe, world=mesh["dp"])        the same

Which dimensions carry data is read off their names (`DATA`); a mesh of one dimension carries data along it. Anything
else is refused: a wrong guess would train a tensor-parallel group on different samples, and nothing would fail.
"""

from dataclasses import replace
from typing import Any, Protocol, TypeGuard

from headrace.errors import BadOption
from headrace.plan.world import World
from headrace.ranks.detect import detect, warn_if_ranks

DATA = frozenset({"batch", "data", "ddp", "dp", "dp_replicate", "dp_shard", "fsdp", "hsdp", "replicate", "shard"})
MODEL = frozenset({"cp", "ep", "etp", "model", "pp", "sp", "tp"})


class Mesh(Protocol):
    """What is asked of a DeviceMesh."""

    @property
    def ndim(self) -> int: ...
    @property
    def mesh_dim_names(self) -> Any: ...
    def get_coordinate(self) -> Any: ...
    def size(self, mesh_dim: int | None = None) -> int: ...


def is_mesh(thing: object) -> TypeGuard[Mesh]:
    """Whether this is torch's DeviceMesh; torch need not be loaded."""
    return any(c.__name__ == "DeviceMesh" and c.__module__.startswith("torch.") for c in type(thing).__mro__)


def world_of(mesh: Mesh) -> World:
    """Where this process stands, and which share of the data its place in the mesh receives."""
    import torch.distributed as dist

    here = mesh.get_coordinate()
    if here is None:
        raise BadOption(f"this process is not part of {mesh}; give each rank the mesh that it belongs to")
    share_rank, share_ranks = 0, 1
    for dim in _data_dims(mesh):
        share_rank = share_rank * mesh.size(dim) + here[dim]
        share_ranks *= mesh.size(dim)
    ranks = dist.get_world_size()
    if ranks % share_ranks:
        raise BadOption(f"{mesh} divides data into {share_ranks} shares, which do not fill a job of {ranks} ranks")
    found = detect()
    world = found if (found.rank, found.ranks) == (dist.get_rank(), ranks) else World(dist.get_rank(), ranks)
    return replace(world, replicas=ranks // share_ranks, source="device mesh", share=(share_rank, share_ranks))


def _data_dims(mesh: Mesh) -> list[int]:
    names = mesh.mesh_dim_names
    if names is None:
        if mesh.ndim == 1:
            return [0]
        raise BadOption(
            "a mesh of several dimensions without names does not say which of them carry data; "
            "give mesh_dim_names=, such as ('dp', 'tp'), or a mesh of the data dimension alone"
        )
    found = [dim for dim, name in enumerate(names) if name in DATA]
    if not found and len(names) == 1 and names[0] not in MODEL:
        return [0]
    if not found:
        raise BadOption(
            f"none of the mesh's dimensions {', '.join(names)} carries data; give the part that does, "
            "such as mesh['dp'], or a World by hand"
        )
    unknown = [name for name in names if name not in DATA | MODEL]
    if unknown:
        raise BadOption(
            f"whether ranks along {', '.join(map(repr, unknown))} receive the same samples cannot be told from the "
            f"name; give the data dimensions alone: mesh[{', '.join(repr(names[d]) for d in found)}]"
        )
    return found


def as_world(world: World | Mesh | None) -> World:
    """The argument `world` of a loader as a World; none is one rank, which is said where a launcher has several."""
    if world is None:
        warn_if_ranks()
        return World()
    if isinstance(world, World):
        return world
    if not is_mesh(world):
        raise BadOption(f"world= takes a World or torch's DeviceMesh, not {type(world).__name__}")
    return world_of(world)
