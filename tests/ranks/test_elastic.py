"""A job of real processes: 3 ranks stop in mid-epoch, 2 go on, then 4, with other workers; nothing twice or lost."""

import json
from pathlib import Path
from typing import Any

import pytest

from headrace import Loader
from headrace.launch.mpi import free_port
from tests import warm

pytest.importorskip("torch", reason="ranks that exchange counts need torch.distributed")

PIPES = """
import headrace
from headrace import Loader, Pipe, World

class Numbers:
    def __init__(self, n): self.n = n
    def __len__(self): return self.n
    def __getitem__(self, i): return i

def keyed(x): return [x, float(headrace.rng().random())]
def most(x): return x % 5 > 1

PIPES = {
    "indexed": Pipe.of(Numbers(203)).shuffle().map(keyed).batch(4),
    "filtered": Pipe.of(Numbers(603)).shuffle().filter(most).map(keyed).batch(4),
}
"""

# One process imports torch and forks the ranks of all three jobs, each job with a group of its own.
PROGRAM = (
    PIPES
    + """
import json, logging, multiprocessing, os, sys
import torch.distributed as dist

folder = sys.argv[1]

def rank(phase, rank, ranks, port, steps, workers):
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "RANK": str(rank), "WORLD_SIZE": str(ranks)}
    logging.basicConfig(filename=f"{folder}/{phase} {rank} log", format="%(message)s")
    dist.init_process_group("gloo")
    out = {}
    for name, pipe in PIPES.items():
        world = World(rank=rank, ranks=ranks)
        with Loader(pipe, seed=7, world=world, workers=workers, start_method="fork" if workers else None) as loader:
            if phase:
                with open(f"{folder}/{phase - 1} {name} 0 state") as file:
                    loader.load_state_dict(json.load(file))
            got = out[name] = []
            for batch in loader:
                got.append(batch)
                if len(got) == steps:
                    break
            with open(f"{folder}/{phase} {name} {rank} state", "w") as file:
                json.dump(loader.state_dict(), file)
    with open(f"{folder}/{phase} {rank}", "w") as file:
        json.dump(out, file)
    dist.barrier()
    dist.destroy_process_group()

for phase, (ranks, port, steps, workers) in enumerate(json.loads(sys.argv[2])):
    fork = multiprocessing.get_context("fork")
    jobs = [fork.Process(target=rank, args=(phase, r, ranks, port, steps, workers)) for r in range(ranks)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    if any(job.exitcode for job in jobs):
        sys.exit(f"phase {phase}: {[job.exitcode for job in jobs]}")
"""
)
JOBS = [(3, 5, 2), (2, 9, 0), (4, 1000, 1)]
"""Ranks, steps, workers."""


@pytest.fixture(scope="module")
def phases(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[Any]], list[str]]:
    folder = tmp_path_factory.mktemp("elastic")
    (folder / "program.py").write_text(PROGRAM)
    jobs = json.dumps([(ranks, str(free_port()), steps, workers) for ranks, steps, workers in JOBS])
    done = warm.run(folder / "program.py", [folder, jobs], folder, timeout=150)
    assert done.returncode == 0, done.stderr[-4000:]
    got = [
        [json.loads((folder / f"{phase} {rank}").read_text()) for rank in range(ranks)]
        for phase, (ranks, _, _) in enumerate(JOBS)
    ]
    said = [line for rank in range(JOBS[-1][0]) for line in (folder / f"2 {rank} log").read_text().splitlines()]
    return folder, got, said


def alone(name: str) -> list[Any]:
    """Every sample in the order of the epoch, from a single process."""
    scope: dict[str, Any] = {"__name__": "pipes"}
    exec(PIPES, scope)
    return [sample for batch in Loader(scope["PIPES"][name], seed=7) for sample in batch]


pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize("name", ["indexed", "filtered"])
def test_every_rank_has_the_same_snapshot_and_steps(phases: Any, name: str) -> None:
    folder, got, _ = phases
    for phase, ranks in enumerate(got):
        states = {(folder / f"{phase} {name} {rank} state").read_text() for rank in range(len(ranks))}
        assert len(states) == 1
        assert len(states.pop()) <= 1024 + 16 * len(ranks)
        assert len({len(rank[name]) for rank in ranks}) == 1


def test_an_indexed_pipe_goes_on_in_the_same_global_order(phases: Any) -> None:
    _, got, _ = phases
    order = [s for ranks in got for step in zip(*(r["indexed"] for r in ranks), strict=True) for b in step for s in b]
    assert order == alone("indexed")


def test_a_filtered_pipe_delivers_every_sample_once_in_the_same_global_order(phases: Any) -> None:
    _, got, said = phases
    whole = [tuple(sample) for sample in alone("filtered")]  # the random value is part of it: the same in any world
    place = {sample: i for i, sample in enumerate(whole)}
    delivered = 0
    for ranks in got:
        for step in zip(*(rank["filtered"] for rank in ranks), strict=True):
            batches = [[place[tuple(sample)] for sample in batch] for batch in step]
            assert all(batch == sorted(batch) for batch in batches)
            # What comes at a step of all ranks is what one rank would deliver next.
            assert sorted(i for batch in batches for i in batch) == list(
                range(delivered, delivered + sum(map(len, batches)))
            )
            delivered += sum(map(len, batches))
    assert delivered == len(whole)
    assert not [line for line in said if "left out" in line]
