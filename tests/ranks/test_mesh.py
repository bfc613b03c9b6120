"""A torch DeviceMesh as a world: only ranks that differ in a data dimension get different samples."""

import json

import pytest

from headrace import Loader, Pipe
from headrace.errors import BadOption
from headrace.plan.world import World
from tests.conftest import RunScript

# torch's own stand-in for a process group: one process that believes to be a rank of many.
PROGRAM = """
import json, sys
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from headrace import Loader, Pipe
from headrace import Loader, Pipe
from headrace.errors import BadOption

def worlds(shape, names, part):
    count = 1
    for size in shape:
        count *= size
    for rank in range(count):
        dist.init_process_group("fake", rank=rank, world_size=count, store=FakeStore())
        try:
            mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
            world = Loader(Pipe.of(range(8)).batch(1), world=mesh[tuple(part)] if part else mesh).world
            yield [world.rank, world.ranks, world.share_rank, world.share_ranks, world.replicas]
        except BadOption as error:
            yield str(error)
        dist.destroy_process_group()

print(json.dumps([list(worlds(*case)) for case in json.loads(sys.argv[1])]))
"""


def test_data_is_shared_along_the_data_dimensions_and_what_does_not_name_them_is_refused(run_script: RunScript) -> None:
    pytest.importorskip("torch", reason="a mesh is torch's")
    cases = [
        ([2, 2, 2], ["pp", "dp", "tp"], None),
        ([2, 2, 2], ["dp_replicate", "dp_shard", "tp"], ["dp_replicate", "dp_shard"]),
        ([4], None, None),
        ([2, 2], None, None),
        ([2, 2], ["tp", "pp"], None),
        ([2, 2], ["dp", "island"], None),
    ]
    done = run_script(PROGRAM, json.dumps(cases), warm=True)
    assert done.returncode == 0, done.stderr
    outer, part, flat, nameless, no_data, unknown = json.loads(done.stdout.splitlines()[-1])
    # pp is the outermost dimension: ranks of one share are not consecutive
    assert outer == [[rank, 8, rank // 2 % 2, 2, 4] for rank in range(8)]
    assert part == [[rank, 8, rank // 2, 4, 2] for rank in range(8)]
    assert flat == [[rank, 4, rank, 4, 1] for rank in range(4)]
    assert all("mesh_dim_names" in text for text in nameless)
    assert all("none of the mesh's dimensions tp, pp carries data" in text for text in no_data)
    assert all("cannot be told from the name" in text for text in unknown)


def test_a_share_that_does_not_fit_the_world_is_refused() -> None:
    assert World(rank=3, ranks=4, replicas=2, share=(0, 2)).share_rank == 0
    for share in ((2, 2), (0, 3)):
        with pytest.raises(BadOption, match="count x replicas = ranks"):
            World(rank=3, ranks=4, replicas=2, share=share)


def test_something_else_than_a_world_is_refused() -> None:
    with pytest.raises(BadOption, match="DeviceMesh, not int"):
        Loader(Pipe.of(range(8)), world=3)  # type: ignore[arg-type]
