"""Jobs of real processes over gloo, behind a filter: steps, values and loss do not depend on how many ranks there are.

One process imports torch and forks the ranks of all jobs, each job with a group of its own: all ranks of the worlds of
1, 2, 3 and 4 read the whole epoch, continue after random cuts of each other's, and train a small model on the way.
Every rank but those with workers of its own evaluates samples in its own process.
"""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headrace.launch.mpi import free_port
from tests import warm
from tests.depth import depth

pytest.importorskip("torch", reason="ranks that exchange counts need torch.distributed")
pytestmark = pytest.mark.timeout(depth(240, 1200))

GLOBAL = 12
"""Samples of a step of all ranks, in any world."""
CUTS = depth(8, 30)

COMMON = """
import json, multiprocessing, os, random, signal, sys, threading
from datetime import timedelta
import numpy
import torch
import torch.distributed as dist
import headrace
from headrace import Loader, Pipe, World

GLOBAL = 12

class Numbers:
    def __init__(self, n): self.n = n
    def __len__(self): return self.n
    def __getitem__(self, i): return i

def keep(x): return x * 7 % 11 > 3

def drawn(x):
    return [x, float(headrace.rng().random()), float(numpy.random.rand()), random.random(), float(torch.rand(()))]

def of_batch(batch):
    return [batch, float(headrace.rng().random()), float(numpy.random.rand()), random.random(), float(torch.rand(()))]

# 624 of 982 samples: the last of 52 steps is a whole one.
PIPE = Pipe.of(Numbers(982)).shuffle().filter(keep).map(drawn)

def pipe(ranks):
    return PIPE.batch(GLOBAL // ranks).map(of_batch)

def loader(ranks, rank, workers=0, **how):
    kind = {"workers": workers, "start_method": "fork"} if workers else {}
    return Loader(pipe(ranks), seed=7, world=World(rank=rank, ranks=ranks), **kind, **how)

def tell(name, rank, value):
    with open(f"{folder}/{name} {rank}", "w") as file:
        json.dump(value, file)

def told(name, rank):
    with open(f"{folder}/{name} {rank}") as file:
        return json.load(file)

def job(ranks, port, body, *args, timeout=60):
    \"\"\"Runs it on so many ranks; their exit codes.\"\"\"
    def rank(number):
        os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
        os.environ |= {"RANK": str(number), "WORLD_SIZE": str(ranks)}
        dist.init_process_group("gloo", timeout=timedelta(seconds=timeout))
        body(number, ranks, *args)
        dist.barrier()
        dist.destroy_process_group()
    processes = [multiprocessing.get_context("fork").Process(target=rank, args=(r,)) for r in range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]

folder, *said = sys.argv[1:]
ports, cuts = json.loads(said[0]), json.loads(said[1])
"""


def run(folder: Path, program: str, jobs: int, cuts: Any = None) -> None:
    (folder / "program.py").write_text(COMMON + program)
    ports = [free_port() for _ in range(jobs)]
    done = warm.run(
        folder / "program.py", [folder, json.dumps(ports), json.dumps(cuts)], folder, timeout=depth(200, 1000)
    )
    assert done.returncode == 0, done.stderr[-6000:]


def told(folder: Path, name: str, ranks: int) -> list[Any]:
    return [json.loads((folder / f"{name} {rank}").read_text()) for rank in range(ranks)]


def sets(got: list[list[Any]]) -> list[set[tuple[Any, ...]]]:
    """The samples of each global step, each with the values that were drawn for it."""
    assert len({len(rank) for rank in got}) == 1, "equal steps"
    return [{tuple(sample) for batch in step for sample in batch[0]} for step in zip(*got, strict=True)]


# --- the same steps and values in every world, and after any cut ------------------------------------------------------

WORLDS = """
def whole(rank, ranks):
    with loader(ranks, rank, workers=1 if ranks == 3 else 0) as epoch:
        got, states = [], []
        for batch in epoch:
            got.append(batch)
            states.append(epoch.state_dict())
        tell(f"whole {ranks}", rank, [got, states])

def rest(rank, ranks):
    \"\"\"What comes after the cuts that other worlds have made.\"\"\"
    out = []
    for number, (before, step, after, many, workers) in enumerate(cuts):
        if after != ranks:
            continue
        _, states = told(f"whole {before}", 0)
        with loader(ranks, rank, workers) as epoch:
            epoch.load_state_dict(states[step - 1])
            got = []
            for batch in epoch:
                got.append(batch)
                if workers and len(got) in (1, 4):
                    for pid in epoch.worker_pids()[:1]:
                        os.kill(pid, signal.SIGKILL)
                if len(got) == many:
                    break
            out.append([number, got, epoch.state_dict()])
    tell(f"rest {ranks}", rank, out)

for ranks in (1, 2, 3, 4):
    assert job(ranks, ports.pop(), whole) == [0] * ranks
for ranks in (1, 2, 3, 4):
    assert job(ranks, ports.pop(), rest) == [0] * ranks
"""


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[int]]]:
    folder, chance = tmp_path_factory.mktemp("worlds"), random.Random(5)
    # Cut in one world after a step, continued in another for so many steps, with workers that are killed or without.
    cuts = []
    for _ in range(CUTS):
        many, workers = chance.choice([3, 6, 100]), chance.choice([0, 0, 2])
        cuts.append([chance.randint(1, 4), chance.randint(1, 51), chance.randint(1, 4), many, workers])
    run(folder, WORLDS, 8, cuts)
    return folder, cuts


def test_global_steps_and_the_values_of_their_samples_are_the_same_in_every_world(worlds: Any) -> None:
    folder, _ = worlds
    alone = sets([got for got, _ in told(folder, "whole 1", 1)])
    assert len(alone) == 52
    assert {len(step) for step in alone} == {GLOBAL}
    for ranks in (2, 3, 4):
        assert sets([got for got, _ in told(folder, f"whole {ranks}", ranks)]) == alone


def test_within_a_rank_samples_stand_in_the_order_of_the_epoch(worlds: Any) -> None:
    folder, _ = worlds
    ((alone, _),) = told(folder, "whole 1", 1)
    place = {sample[0]: number for number, sample in enumerate(s for batch in alone for s in batch[0])}
    for ranks in (2, 3, 4):
        for got, _ in told(folder, f"whole {ranks}", ranks):
            order = [place[sample[0]] for batch in got for sample in batch[0]]
            assert order == sorted(order)


def test_there_is_one_place_for_the_whole_job_after_every_step(worlds: Any) -> None:
    folder, _ = worlds
    for ranks in (2, 3, 4):
        states = [states for _, states in told(folder, f"whole {ranks}", ranks)]
        assert all(rank == states[0] for rank in states)


def test_after_a_cut_in_any_world_any_other_continues_with_the_same_steps_and_values(worlds: Any) -> None:
    folder, cuts = worlds
    whole = {ranks: [got for got, _ in told(folder, f"whole {ranks}", ranks)] for ranks in (1, 2, 3, 4)}
    states = {ranks: told(folder, f"whole {ranks}", 1)[0][1] for ranks in (1, 2, 3, 4)}
    alone, tried = sets(whole[1]), 0
    for ranks in (1, 2, 3, 4):
        rests = told(folder, f"rest {ranks}", ranks)
        for together in zip(*rests, strict=True):
            (number,) = {number for number, _, _ in together}
            before, step, _, many, _ = cuts[number]
            expected = alone[step : step + many]
            assert sets([got for _, got, _ in together]) == expected, cuts[number]
            assert len({json.dumps(state) for _, _, state in together}) == 1
            if before == ranks:  # what is drawn for a batch, too
                for rank, (_, got, state) in enumerate(together):
                    assert got == whole[ranks][rank][step : step + many]
                    assert state == states[ranks][min(step + many, len(alone)) - 1] or step + many >= len(alone)
            tried += 1
    assert tried == CUTS


# --- the same loss ----------------------------------------------------------------------------------------------------

TRAINED = """
def train(rank, ranks, number, steps):
    torch.set_default_dtype(torch.float64)
    with loader(ranks, rank, workers=number % 2) as epoch:
        weights, losses = torch.zeros(4), []
        if number:
            state, weights, losses = told(f"trained {number - 1}", 0)
            epoch.load_state_dict(state)
            weights = torch.tensor(weights)
        for batch, *_ in epoch:
            data = torch.tensor(batch)
            x, y = data[:, 1:], data[:, 0] / 500
            wrong = x @ weights - y
            sums = torch.cat([2 * x.T @ wrong, (wrong**2).sum().reshape(1), torch.tensor([float(len(data))])])
            dist.all_reduce(sums)
            weights = weights - 0.05 * sums[:4] / sums[5]
            losses.append(float(sums[4] / sums[5]))
            if steps and number % 2 and len(losses) % 3 == 0:
                os.kill(epoch.worker_pids()[0], signal.SIGKILL)
            if len(losses) == steps:
                break
        tell(f"trained {number}", rank, [epoch.state_dict(), weights.tolist(), losses])

assert job(1, ports.pop(), train, 0, None) == [0]
os.rename(f"{folder}/trained 0 0", f"{folder}/alone 0")
for number, (ranks, steps) in enumerate([(4, 13), (3, 26), (4, 39), (1, None)]):
    assert job(ranks, ports.pop(), train, number, steps) == [0] * ranks
"""


def test_a_model_that_is_trained_on_4_3_4_and_1_ranks_has_the_loss_of_one_rank(tmp_path: Path) -> None:
    run(tmp_path, TRAINED, 5)
    (_, alone_weights, alone), (_, weights, losses) = told(tmp_path, "alone", 1)[0], told(tmp_path, "trained 3", 1)[0]
    assert len(losses) == len(alone) == 52
    assert alone[-1] < alone[0] / 2, "it learns"
    assert max(abs(a - b) for a, b in zip(losses, alone, strict=True)) < 1e-12
    assert max(abs(a - b) for a, b in zip(weights, alone_weights, strict=True)) < 1e-12


# --- a rank that is killed, ranks that leave --------------------------------------------------------------------------

KILLED = """
def killed(rank, ranks):
    with loader(ranks, rank, workers=1) as epoch:
        got = []
        try:
            for batch in epoch:
                got.append(batch)
                if len(got) % 5 == 0:
                    tell("saved", rank, [len(got), epoch.state_dict()])
                if len(got) == 13 and rank == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                dist.barrier()
        except Exception as error:
            tell("killed", rank, [got, f"{type(error).__name__}: {error}"])
            os._exit(3)

def restarted(rank, ranks):
    with loader(ranks, rank) as epoch:
        step, state = told("saved", 0)
        epoch.load_state_dict(state)
        tell("restarted", rank, [step, list(epoch)])

def read(rank, ranks):
    with loader(ranks, rank) as epoch:
        tell("read", rank, list(epoch))

assert job(3, ports.pop(), killed) == [3, -9, 3]
assert job(3, ports.pop(), restarted) == [0, 0, 0]
assert job(3, ports.pop(), read) == [0, 0, 0]
"""


def test_a_killed_rank_is_an_error_for_the_others_and_the_job_continues_from_its_last_snapshot(tmp_path: Path) -> None:
    run(tmp_path, KILLED, 3)
    whole = told(tmp_path, "read", 3)
    for rank in (0, 2):
        got, error = json.loads((tmp_path / f"killed {rank}").read_text())
        assert got == whole[rank][: len(got)]
        assert 13 <= len(got) < 52
        assert error.startswith("RuntimeError")
    for rank, (step, rest) in enumerate(told(tmp_path, "restarted", 3)):
        assert step == 10
        assert rest == whole[rank][10:]


LEFT = """
def left(rank, ranks):
    out = []
    with loader(ranks, rank, workers=rank) as epochs:
        for steps in ((2, 7, 20), (30, 1, 1), (5, 5, 5)):
            said, got = "", 0
            try:
                for batch in epochs:
                    got += 1
                    if got == steps[rank]:
                        break
            except headrace.errors.RanksDisagree as error:
                said = str(error)
            out.append([got, said])
        out.append(epochs.epoch)
        tell("left", rank, [out, list(epochs)])

def fourth(rank, ranks):
    with loader(ranks, rank, epoch=3) as epochs:
        tell("fourth", rank, list(epochs))

assert job(3, ports.pop(), left) == [0, 0, 0]
assert job(3, ports.pop(), fourth) == [0, 0, 0]
"""


def test_ranks_that_break_at_different_steps_are_told_and_the_next_epoch_is_right(tmp_path: Path) -> None:
    run(tmp_path, LEFT, 2)
    whole = told(tmp_path, "fourth", 3)
    for rank, (epochs, fourth) in enumerate(told(tmp_path, "left", 3)):
        assert epochs.pop() == 3
        for (got, said), steps in zip(epochs, ((2, 7, 20), (30, 1, 1), (5, 5, 5)), strict=True):
            if said:
                assert "has left epoch" in said
                assert min(steps) <= got < steps[rank]
            else:
                assert got == steps[rank]
        assert fourth == whole[rank]
    samples = Counter(sample[0] for rank in whole for batch in rank for sample in batch[0])
    assert len(samples) == sum(samples.values()) == 624
