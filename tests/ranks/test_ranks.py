"""Real ranks: gloo groups, as torchrun starts them, share pipes disjointly, in equal steps, whatever the policy."""

import json
from typing import Any

import pytest

from tests.depth import depth
from tests.warm import torchrun

PROGRAM = """
import json, sys
import torch.distributed as dist
from headrace import Loader, Pipe, World
from headrace.errors import RanksDisagree

dist.init_process_group("gloo")
world = World(rank=dist.get_rank(), ranks=dist.get_world_size())
out = {}

def read(name, pipe, **options):
    with Loader(pipe, seed=4, world=world, workers=2, start_method="fork", **options) as loader:
        out[name] = [list(loader), list(loader)]

class Numbers:
    def __init__(self, n): self.n = n
    def __len__(self): return self.n
    def __getitem__(self, i): return i

def most(x): return x % 5 > 1

for ends in ("short", "pad", "repeat", "drop"):
    read(f"indexed {ends}", Pipe.of(Numbers(23)).shuffle().batch(4), ends=ends)
read("streamed", Pipe.of(lambda: iter(range(23))).shuffle(window=5).sharding_filter().batch(4))
read("items", Pipe.of(Numbers(23)))
read("filtered", Pipe.of(Numbers(101)).shuffle().filter(most).batch(4))
read("filtered stream", Pipe.of(lambda: iter(range(101))).sharding_filter().filter(most).batch(2))

try:
    list(Loader(Pipe.of(Numbers(20)).batch(2), seed=world.rank, world=world))
    out["disagree"] = "nothing"
except RanksDisagree as error:
    out["disagree"] = str(error)

def fails(x):
    if world.rank == 1 and x > 30: raise KeyError("mine")
    return True
try:
    list(Loader(Pipe.of(Numbers(100)).filter(fails).batch(2), seed=4, world=world))
except Exception as error:
    out["failed"] = type(error).__name__ + str(error)
with open(f"{sys.argv[1]}/{world.rank}.json", "w") as file:
    json.dump(out, file)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module", params=depth([3], [2, 3]))
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("ranks")
    program = folder / "program.py"
    program.write_text(PROGRAM)
    done = torchrun(request.param, program, [folder], folder, timeout=100)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(request.param)]


def flat(epoch: list[list[int]]) -> list[int]:
    return [x for batch in epoch for x in batch]


pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("name", ["indexed short", "streamed"])
def test_short_is_complete_and_disjoint_in_equal_steps(ranks: list[dict[str, Any]], name: str) -> None:
    for epoch in range(2):
        assert len({len(r[name][epoch]) for r in ranks}) == 1
        assert sorted(x for r in ranks for x in flat(r[name][epoch])) == list(range(23))


@pytest.mark.parametrize("ends", ["pad", "repeat"])
def test_filled_epochs_are_complete_and_every_batch_is_full(ranks: list[dict[str, Any]], ends: str) -> None:
    for epoch in range(2):
        assert all(len(b) == 4 for r in ranks for b in r[f"indexed {ends}"][epoch])
        assert {x for r in ranks for x in flat(r[f"indexed {ends}"][epoch])} == set(range(23))


def test_drop_leaves_out_the_incomplete_step(ranks: list[dict[str, Any]]) -> None:
    assert all(len(r["indexed drop"][0]) == 23 // (4 * len(ranks)) for r in ranks)


def test_twenty_three_items_on_two_ranks_are_eleven_each(ranks: list[dict[str, Any]]) -> None:
    assert all(len(r["items"][0]) == 23 // len(ranks) for r in ranks)


@pytest.mark.parametrize("name", ["filtered", "filtered stream"])
def test_ranks_share_what_a_filter_leaves_in_equal_steps(ranks: list[dict[str, Any]], name: str) -> None:
    for epoch in range(2):
        assert len({len(r[name][epoch]) for r in ranks}) == 1
        got = [x for r in ranks for x in flat(r[name][epoch])]
        assert len(set(got)) == len(got)
        assert set(got) <= {x for x in range(101) if x % 5 > 1}
        assert len(got) >= (60 if name == "filtered" else 60 - 5 * len(ranks) * 4)


def test_ranks_that_were_given_different_seeds_are_told_which(ranks: list[dict[str, Any]]) -> None:
    assert all("another seed" in r["disagree"] for r in ranks)


def test_a_rank_that_fails_raises_its_own_error_and_the_others_do_not_wait(ranks: list[dict[str, Any]]) -> None:
    assert "mine" in ranks[1]["failed"]
    assert "another rank failed" in ranks[0]["failed"]
