"""Pipes on ranks that read streams of their own: nobody divides them again, and all make the same number of steps."""

import json
from typing import Any

import pytest

from tests.warm import torchrun

PROGRAM = """
import json, sys
import torch, torch.distributed as dist
from headrace import DataLoader2, DistributedReadingService, MultiProcessingReadingService, SequentialReadingService
from headrace.datapipes import IterDataPipe
from headrace.datapipes.iter import IterableWrapper
from torch.utils.data import DataLoader as TorchLoader

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(10 + rank)
out = {}

class Through(IterDataPipe):
    def __init__(self, source):
        self.source = source
    def __iter__(self):
        yield from self.source

class Own(Through):
    "Divides by itself."
    share = (1, 0)
    def apply_sharding(self, count, number, sharding_group=1):
        self.share = (count, number)
    def __iter__(self):
        for i, x in enumerate(self.source):
            if i % self.share[0] == self.share[1]:
                yield x

mine = IterableWrapper(range(100 * rank, 100 * rank + (10, 5, 7)[rank]))
out["bare fullsync"] = list(mine.fullsync())
out["bare fullsync again"] = list(mine.fullsync())
for workers in (0, 2):
    rs = DistributedReadingService()
    if workers:
        rs = SequentialReadingService(rs, MultiProcessingReadingService(workers, "fork"))
    def read(pipe):
        torch.manual_seed(10 + rank)  # rank 0's rules
        with DataLoader2(pipe, reading_service=rs) as dl:
            return [list(dl), list(dl)]
    out[f"per rank {workers}"] = read(mine.map(int))
    out[f"whole {workers}"] = read(IterableWrapper(range(20)).shuffle())
    out[f"own class {workers}"] = read(Own(IterableWrapper(range(21))))
    out[f"shared {workers}"] = read(Through(IterableWrapper(range(20)).shuffle().sharding_filter()))
    out[f"drawn {workers}"] = read(IterableWrapper(range(21)).shuffle().sharding_filter())
from headrace import DataLoader
for name, loader in (("torch", TorchLoader), ("ours", DataLoader)):
    for workers in (0, 2):
        made = loader(IterableWrapper(range(24)).shuffle().sharding_filter(), batch_size=2, num_workers=workers,
                      multiprocessing_context="fork" if workers else None)
        out[f"{name} {workers}"] = [[x for b in made for x in b.tolist()] for _ in range(2)]
with open(f"{sys.argv[1]}/{rank}.json", "w") as file:
    json.dump(out, file)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    pytest.importorskip("torch.distributed.run")
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "program.py").write_text(PROGRAM)
    done = torchrun(2, folder / "program.py", [folder], folder, timeout=110)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.timeout(120)
def test_a_bare_fullsync_ends_all_ranks_after_the_same_step(ranks: list[dict[str, Any]]) -> None:
    for name in ("bare fullsync", "bare fullsync again"):
        assert [rank[name] for rank in ranks] == [list(range(5)), list(range(100, 105))]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_source_of_each_rank_is_not_divided_again(ranks: list[dict[str, Any]], workers: int) -> None:
    for rank, out in enumerate(ranks):
        assert out[f"per rank {workers}"] == [list(range(100 * rank, 100 * rank + 5))] * 2
        for epoch in out[f"whole {workers}"]:
            assert sorted(epoch) == list(range(20))
        assert out[f"own class {workers}"] == [list(range(rank, 21, 2))[:10]] * 2
    assert ranks[0][f"whole {workers}"] != ranks[1][f"whole {workers}"]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_users_pipe_behind_a_shard_point_has_its_ranks_share(ranks: list[dict[str, Any]], workers: int) -> None:
    for name in (f"shared {workers}", f"drawn {workers}"):
        for epoch in range(2):
            parts = [out[name][epoch] for out in ranks]
            assert len({len(part) for part in parts}) == 1
            samples = [x for part in parts for x in part]
            assert len(samples) == len(set(samples)) >= 20
    assert [out[f"drawn {workers}"] for out in ranks] == [out["drawn 0"] for out in ranks]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("loader", ["torch", "ours"])
@pytest.mark.parametrize("workers", [0, 2])
def test_ranks_of_a_classic_loader_share_a_graph(ranks: list[dict[str, Any]], loader: str, workers: int) -> None:
    for epoch in range(2):
        parts = [out[f"{loader} {workers}"][epoch] for out in ranks]
        assert [len(part) for part in parts] == [12, 12]
        assert sorted(parts[0] + parts[1]) == list(range(24))
