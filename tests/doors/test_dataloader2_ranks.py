"""Seed 000's Distributed and Multiprocessing + Distributed programs, on real gloo groups, as torchrun starts them."""

import json
from typing import Any

import pytest

from tests.depth import depth
from tests.warm import torchrun

PROGRAM = """
import json, os, sys
import torch, torch.distributed as dist
from headrace.datapipes.iter import IterableWrapper
from headrace.doors.dataloader2.loader import DataLoader2
from headrace.doors.dataloader2.services import (
    DistributedReadingService, MultiProcessingReadingService, SequentialReadingService)

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())  # ranks agree on a seed all the same
out = {}

def most(x): return x % 5 > 0

def read(name, datapipe, policy, workers, **more):
    rs = DistributedReadingService(policy=policy)
    if workers:
        rs = SequentialReadingService(rs, MultiProcessingReadingService(workers, "fork", **more))
    dl = DataLoader2(datapipe, reading_service=rs)
    epochs = [list(dl)]
    for epoch in (2, 3, 2):
        dl.seed(epoch)
        epochs.append([d for d in dl])
    dl.shutdown()
    out[name] = epochs

for workers in (0, 2):
    for policy in ("short", "drop"):
        datapipe = IterableWrapper(range(23)).shuffle().sharding_filter().batch(4)
        read(f"indexed {policy} {workers}", datapipe, policy, workers)
    datapipe = IterableWrapper(lambda: iter(range(23))).shuffle(buffer_size=5).sharding_filter().map(int).batch(4)
    read(f"stream short {workers}", datapipe, "short", workers)
    datapipe = IterableWrapper(range(23)).shuffle().sharding_filter().filter(most)
    read(f"filtered short {workers}", datapipe, "short", workers)
def note(x):
    return x, os.getpid()
datapipe = IterableWrapper(range(24)).shuffle().sharding_filter().map(note)
read("copies", datapipe, "short", 2, sharding="per-worker")
copies = out.pop("copies")
assert len({pid for _, pid in copies[0]}) == 2, "one copy in each worker of this rank"
out["copies 0"] = [[x for x, _ in epoch] for epoch in copies]
with open(f"{sys.argv[1]}/{dist.get_rank()}.json", "w") as file:
    json.dump(out, file)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module", params=depth([3], [2, 3]))
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    pytest.importorskip("torch.distributed.run")
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "program.py").write_text(PROGRAM)
    done = torchrun(request.param, folder / "program.py", [folder], folder, timeout=110)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(request.param)]


@pytest.mark.timeout(120)
def test_copies_per_worker_on_ranks_divide_the_samples_among_all_of_them(ranks: list[dict[str, Any]]) -> None:
    for epoch in range(4):
        assert sorted(x for rank in ranks for x in rank["copies 0"][epoch]) == list(range(24))


def flat(epoch: list[Any]) -> list[int]:
    return [x for d in epoch for x in (d if isinstance(d, list) else [d])]


@pytest.mark.timeout(120)
def test_every_rank_makes_the_same_number_of_steps_and_none_shares_a_sample(ranks: list[dict[str, Any]]) -> None:
    for name in ranks[0]:
        for epoch in range(4):
            steps = {len(rank[name][epoch]) for rank in ranks}
            assert len(steps) == 1, name
            samples = [x for rank in ranks for x in flat(rank[name][epoch])]
            assert len(samples) == len(set(samples)), name
            if "short" in name and "filtered" not in name:
                assert sorted(samples) == list(range(23)), name


@pytest.mark.timeout(120)
def test_a_seed_gives_the_same_epoch_again_and_workers_change_nothing(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        for name, epochs in rank.items():
            assert epochs[1] == epochs[3], name
            assert epochs[1] != epochs[2], name
            assert epochs[1:] == rank[name[:-1] + "0"][1:], name  # (the first draws its seed from torch's generator)
