"""Seed 000's Distributed and Multiprocessing + Distributed programs, as under torchrun; only the imports are ours.

Two CSV files of 45 and 46 rows on 2 and 3 ranks, with no workers and with 2: every rank makes the same number of steps
in every epoch, whatever the policy for uneven ends, and 23 rows on 2 ranks never hang.
"""

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.depth import depth
from tests.warm import torchrun

pytest.importorskip("torch.distributed.run")
EPOCHS = depth(3, 10)
RANKS = depth([2], [2, 3])
POLICIES = ("short", "pad", "repeat", "drop")

GRAPH = """
import csv, json, os, sys
import torch.distributed as dist
from headrace import (
    DataLoader2, DistributedReadingService, IterableWrapper, MultiProcessingReadingService, SequentialReadingService)

folder, epochs = sys.argv[1], int(sys.argv[2])
dist.init_process_group("gloo")
rank = dist.get_rank()

def fn(row):
    return int(row[0]), float(row[1]), row[2]

def the_rows(names):
    datapipe = IterableWrapper([f"{folder}/{name}.csv" for name in names])
    datapipe = datapipe.open_files(encoding="utf-8").parse_csv()
    datapipe = datapipe.shuffle().sharding_filter()
    return datapipe.map(fn)

def the_graph(names):
    return the_rows(names).batch(8)
"""

PROGRAM = """
def service(policy, workers):
    rs = DistributedReadingService(timeout=60, policy=policy)
    if workers:
        mp_rs = MultiProcessingReadingService(num_workers=workers)
        rs = SequentialReadingService(rs, mp_rs)
    return rs

out = {}
for policy in ("short", "pad", "repeat", "drop"):
    for workers in (0, 2):
        dl = DataLoader2(the_graph(["train1", "train2"]), reading_service=service(policy, workers))
        runs, masks = [], []
        for epoch in range(epochs):
            dl.seed(epoch)
            runs.append([])
            masks.append([])
            for d in dl:
                runs[-1].append([row[0] for row in d])
                masks[-1].append(dl.mask() or [True] * len(d))
        out[f"{policy} {workers}"], out[f"{policy} {workers} masks"] = runs, masks
        dl.shutdown()
    dl = DataLoader2(the_rows(["few"]), reading_service=service(policy, 0))
    out[f"{policy} few samples"] = [[row[0] for row in dl]]
    dl.shutdown()
    dl = DataLoader2(the_graph(["few"]), reading_service=service(policy, 0))
    out[f"{policy} few"] = [[[row[0] for row in d] for d in dl]]
    dl.shutdown()
with open(f"{folder}/{rank}.json", "w") as file:
    json.dump(out, file)
dist.barrier()
dist.destroy_process_group()
"""

FAILS = """
def bad(row):
    if rank == 1 and row[0] % 7 == 3:
        raise KeyError("this row is broken")
    return row

rs = SequentialReadingService(DistributedReadingService(policy="short"), MultiProcessingReadingService(2))
datapipe = the_rows(["train1", "train2"])
if FILTERED:
    datapipe = datapipe.filter(lambda row: row[0] % 5 > 0)  # nobody knows how many are left
dl = DataLoader2(datapipe.map(bad).batch(8), reading_service=rs)
for d in dl:
    dist.barrier()  # as a training step would
"""


def write(folder: Path) -> None:
    for name, first, count in (("train1", 1000, 45), ("train2", 2000, 46), ("few", 0, 23)):
        lines = [f'{first + i},{i / 7},"text, with a comma and ümlaut {i}"' for i in range(count)]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def job(folder: Path, ranks: int, code: str) -> "subprocess.CompletedProcess[str]":
    program = folder / "program.py"
    program.write_text(GRAPH + code)
    return torchrun(ranks, program, [folder, EPOCHS], folder, timeout=depth(80, 280))


@pytest.fixture(scope="module", params=RANKS)
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("seed000")
    write(folder)
    done = job(folder, request.param, PROGRAM)
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(request.param)]


ROWS = {"": [*range(1000, 1045), *range(2000, 2046)], "few": list(range(23))}
pytestmark = pytest.mark.timeout(depth(100, 300))


@pytest.mark.parametrize("policy", POLICIES)
def test_every_epoch_is_shared_in_equal_steps_as_the_policy_says(ranks: list[dict[str, Any]], policy: str) -> None:
    for name in (f"{policy} 0", f"{policy} 2", f"{policy} few"):
        rows = ROWS["few" if "few" in name else ""]
        for epoch in range(len(ranks[0][name])):
            steps = {len(rank[name][epoch]) for rank in ranks}
            assert len(steps) == 1, name
            got = Counter(row for rank in ranks for d in rank[name][epoch] for row in d)
            assert set(got) <= set(rows)
            if policy != "drop":
                assert set(got) == set(rows), "complete"
            if policy in ("short", "drop"):
                assert max(got.values(), default=1) == 1, "disjoint"
            if "few" not in name:
                real = Counter(
                    row
                    for rank in ranks
                    for d, mask in zip(rank[name][epoch], rank[f"{name} masks"][epoch], strict=True)
                    for row, true in zip(d, mask, strict=True)
                    if true
                )
                assert max(real.values()) == 1, "disjoint without the mask"
                if policy != "drop":
                    assert set(real) == set(rows), "complete without it too"
            if policy == "pad":
                assert len([row for row, times in got.items() if times > 1]) <= 1, "only one sample fills"
            if policy in ("pad", "repeat", "drop"):
                assert all(len(d) == 8 for rank in ranks for d in rank[name][epoch])


def test_every_epoch_has_another_order_and_workers_change_nothing(ranks: list[dict[str, Any]]) -> None:
    for policy in POLICIES:
        assert all(rank[f"{policy} 0"] == rank[f"{policy} 2"] for rank in ranks)
        assert len({json.dumps(epoch) for epoch in ranks[0][f"{policy} 0"]}) == EPOCHS


def test_single_rows_are_dealt_in_turn_and_the_surplus_is_left_out(ranks: list[dict[str, Any]]) -> None:
    for policy in POLICIES:
        got = [rank[f"{policy} few samples"][0] for rank in ranks]
        assert len({len(rows) for rows in got}) == 1
        everything = [row for rows in got for row in rows]
        assert len(set(everything)) == len(everything)
        assert len(everything) == 23 // len(ranks) * len(ranks)


@pytest.mark.parametrize("filtered", depth([True], [False, True]))
def test_a_rank_that_raises_ends_the_job_with_its_own_error(tmp_path: Path, filtered: bool) -> None:
    # The time-out of the service is half an hour: nobody waits for it.
    write(tmp_path)
    done = job(tmp_path, 2, f"FILTERED = {filtered}\n{FAILS}")
    assert done.returncode != 0
    assert "KeyError: 'this row is broken'" in done.stderr
