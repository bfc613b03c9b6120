import pickle
from typing import Any

import pytest

from headrace.errors import BadOption
from headrace.plan.world import World


def test_alone_is_the_default() -> None:
    assert (World().share_rank, World().share_ranks) == (0, 1)


def test_consecutive_ranks_of_one_model_receive_one_share() -> None:
    worlds = [World(rank=rank, ranks=6, replicas=2) for rank in range(6)]
    assert [world.share_rank for world in worlds] == [0, 0, 1, 1, 2, 2]
    assert {world.share_ranks for world in worlds} == {3}


def test_a_world_is_a_value() -> None:
    world = World(rank=3, ranks=8, local_rank=1, local_ranks=2, node=1, nodes=4, source="torchrun")
    assert pickle.loads(pickle.dumps(world)) == world
    assert hash(world) == hash(World(3, 8, 1, 2, 1, 4, 1, "torchrun"))
    with pytest.raises(AttributeError):
        world.rank = 4  # type: ignore[misc]


def test_the_store_of_a_world_is_no_part_of_its_value() -> None:
    store: Any = object()
    world = World(rank=1, ranks=2, store=store)
    assert world.store is store
    assert (world, hash(world), repr(world)) == (World(1, 2), hash(World(1, 2)), repr(World(1, 2)))
    assert World.detect().store is None


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"rank": 2, "ranks": 2}, "rank must be one of 0..1"),
        ({"rank": -1}, "rank must be one of 0..0"),
        ({"ranks": 0}, "at least 1"),
        ({"rank": "0"}, "give an int, not str"),
        ({"ranks": True}, "give an int, not bool"),
        ({"local_rank": 1}, "local_rank must be one of 0..0"),
        ({"local_ranks": 2}, "at most as many local_ranks as ranks"),
        ({"node": 1}, "node must be one of 0..0"),
        ({"nodes": 2}, "at most as many nodes as ranks"),
        ({"ranks": 4, "replicas": 3}, "replicas must divide ranks"),
        ({"replicas": 0}, "replicas must divide ranks"),
    ],
)
def test_an_impossible_world_is_refused_with_what_to_do(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(BadOption, match=told):
        World(**wrong)
