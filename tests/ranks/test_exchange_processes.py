"""Rounds of real processes over gloo: a slow rank, one that raises, breaks in mid-epoch, snapshots at every step.

Each job is one interpreter that imports torch once and forks its ranks.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.conftest import RunScript
from tests.depth import depth

pytest.importorskip("torch", reason="ranks that exchange counts need torch.distributed")
pytestmark = pytest.mark.timeout(120)
MOST = 6001 * 3 // 5 // 12
"""Fewer steps than `LONG` has on 3 ranks."""

RANKS = """
import datetime, json, multiprocessing, os, signal, sys, threading, time
import torch.distributed as dist
from headrace import Loader, Pipe, World
from headrace.errors import RanksDisagree, WorkerStuck
from headrace.ranks import exchange

class Numbers:
    def __init__(self, n): self.n = n
    def __len__(self): return self.n
    def __getitem__(self, i): return i

def most(x): return x % 5 > 1

SHAPES = {
    "indexed": Pipe.of(Numbers(401)).shuffle().filter(most).batch(4),
    "streamed": Pipe.of(lambda: iter(range(401))).sharding_filter().filter(most).batch(4),
}
LONG = Pipe.of(Numbers(6001)).shuffle().filter(most).batch(4)  # more than ranks look ahead

def threads():
    return len(exchange.EXCHANGING)

def rank(number, ranks):
    # A file needs no port that somebody else might take first.
    dist.init_process_group(
        "gloo", init_method=f"file://{os.getcwd()}/store", rank=number, world_size=ranks, timeout=TIMEOUT
    )
    out = body(World(rank=number, ranks=ranks))
    with open(f"{number}.json", "w") as file:
        json.dump(out, file)
    if END:
        dist.barrier()
        dist.destroy_process_group()

END = True
TIMEOUT = datetime.timedelta(minutes=30)

def main():
    fork = multiprocessing.get_context("fork")
    ranks = int(sys.argv[1])
    jobs = [fork.Process(target=rank, args=(r, ranks)) for r in range(ranks)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    codes = [job.exitcode for job in jobs]
    sys.exit(f"exit codes {codes}" if any(codes) else 0)
"""


@pytest.fixture
def job(run_script: RunScript, tmp_path: Path) -> Any:
    """Runs `body(world)` on ranks; what each returns."""

    def run(ranks: int, body: str) -> list[Any]:
        done = run_script(RANKS + body + "\nmain()\n", ranks, timeout=100, warm=True)
        assert done.returncode == 0, done.stderr[-4000:]
        return [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(ranks)]

    return run


def flat(batches: list[list[int]]) -> list[int]:
    return [x for batch in batches for x in batch]


@pytest.mark.deep
@pytest.mark.parametrize("ranks", depth([3], [2, 3]))
def test_a_slow_rank_changes_nothing(job: Any, ranks: int) -> None:
    got = job(
        ranks,
        """
def slow(x):
    if dist.get_rank() == 1:
        threading.Event().wait(0.002)
    return x

def body(world):
    out = {}
    for name, pipe in SHAPES.items():
        for workers in (0, 1):
            with Loader(pipe.map(slow), seed=3, world=world, workers=workers, kind=None if workers else "inline",
                        start_method="fork" if workers else None) as loader:
                out[f"{name} {workers}"] = [list(loader), list(loader)]
    return {"got": out, "threads": threads()}
""",
    )
    for name in ("indexed", "streamed"):
        for epoch in range(2):
            mine = [rank["got"][f"{name} 0"][epoch] for rank in got]
            assert len({len(batches) for batches in mine}) == 1
            everything = flat([batch for batches in mine for batch in batches])
            assert len(set(everything)) == len(everything) > 200
            assert mine == [rank["got"][f"{name} 1"][epoch] for rank in got]
    assert [rank["threads"] for rank in got] == [0] * ranks


@pytest.mark.parametrize("ranks", depth([3], [2, 3]))
def test_a_rank_that_raises_in_mid_epoch_raises_everywhere_after_the_same_step(job: Any, ranks: int) -> None:
    got = job(
        ranks,
        """
def body(world):
    out = []
    for good in (0, 1, 6, 7, 9):
        class Bad(Numbers):
            def __getitem__(self, i):
                if world.rank == 1 and i // world.ranks == 4 * good + 2:
                    raise KeyError("mine")
                return i
        steps, raised = 0, ""
        pipe = Pipe.of(Bad(800)).filter(lambda x: True).batch(4)
        with Loader(pipe, seed=3, world=world) as loader:
            try:
                for batch in loader:
                    steps += 1
            except Exception as error:
                raised = f"{type(error).__name__}: {error}"
            # The same job continues: no round was lost, none is left over.
            out.append([good, steps, raised, threads()])
    return out
""",
    )
    for rank, runs in enumerate(got):
        for good, steps, raised, threads in runs:
            assert steps == good
            assert raised.startswith(
                "KeyError: 'mine'" if rank == 1 else "RuntimeError: another rank failed (rank 1: KeyError"
            )
            assert threads == 1


@pytest.mark.deep
@pytest.mark.parametrize("ranks", depth([3], [2, 3]))
def test_a_break_in_mid_epoch_does_not_disturb_the_next(job: Any, ranks: int) -> None:
    got = job(
        ranks,
        """
def body(world):
    out = {}
    for name, pipe in SHAPES.items():
        with Loader(pipe, seed=3, world=world) as loader:
            out[f"{name} alone"] = list(loader)
        for apart in (0, 1, 9):
            # Ranks leave after the same step, or one of them a few steps later.
            with Loader(pipe, seed=3, world=world) as loader:
                for steps in (1, 3, 5, 8):
                    later = apart if world.rank == 0 else 0
                    loader.set_epoch(7)
                    try:
                        for step, batch in enumerate(loader, 1):
                            if step == steps + later:
                                break
                    except RanksDisagree as error:
                        out.setdefault("told", []).append(str(error))
                loader.set_epoch(0)
                out[f"{name} {apart}"] = list(loader)
    return {"got": out, "threads": threads()}
""",
    )
    for rank in got:
        for name in ("indexed", "streamed"):
            alone = rank["got"][f"{name} alone"]
            assert len(alone) > 8 + 9
            for apart in (0, 1, 9):
                assert rank["got"][f"{name} {apart}"] == alone
        assert rank["threads"] == 0
    for rank in got[1:]:
        assert "told" not in rank["got"], "only who is still in an epoch is told that others have left it"
    assert all("has left epoch 7 and begun epoch" in text for text in got[0]["got"]["told"])


@pytest.mark.parametrize("ranks", depth([3], [2, 3]))
def test_snapshots_at_every_step_continue_in_the_same_job(job: Any, ranks: int) -> None:
    got = job(
        ranks,
        f"""
EVERY = {depth(3, 1)}
"""
        """
def body(world):
    out = {}
    for name, pipe in SHAPES.items():
        with Loader(pipe, seed=3, world=world, workers=1, start_method="fork") as loader:
            whole, states = [], []
            for batch in loader:
                whole.append(batch)
                states.append(loader.state_dict())
        right = []
        for step in range(1, len(whole), EVERY):
            with Loader(pipe, seed=3, world=world) as loader:
                loader.load_state_dict(json.loads(json.dumps(states[step - 1])))
                right.append(list(loader) == whole[step:])
        out[name] = [right, json.dumps(states)]
    return out
""",
    )
    for name in ("indexed", "streamed"):
        assert len({rank[name][1] for rank in got}) == 1, "one snapshot for the whole job, at every step"
        for rank in got:
            assert len(rank[name][0]) >= 4
            assert all(rank[name][0])


def test_a_rank_that_closes_in_mid_epoch_is_an_error_for_the_others_at_once(job: Any) -> None:
    # The time-out is half an hour: what the others see is the closed connection.
    got = job(
        3,
        """
def body(world):
    loader = Loader(LONG, seed=3, world=world)
    steps, raised = 0, ""
    try:
        for batch in loader:
            steps += 1
            if world.rank == 1 and steps == 2:
                break
    except Exception as error:
        raised = f"{type(error).__name__}: {error}"
    loader.close()
    return [steps, raised, threads()]
""",
    )
    assert got[1] == [2, "", 0]
    for steps, raised, threads in (got[0], got[2]):
        assert 2 <= steps < MOST
        assert raised.startswith("RuntimeError: another rank has left the job, or closed its loader")
        assert threads == 0


def test_a_rank_that_leaves_and_stays_is_an_error_after_the_time_out_of_fullsync(job: Any) -> None:
    got = job(
        2,
        """
def body(world):
    loader = Loader(LONG.fullsync(timeout=2), seed=3, world=world)
    batches, steps, raised = iter(loader), 0, ""
    try:
        for batch in batches:
            steps += 1
            if world.rank == 1 and steps == 2:
                break
    except Exception as error:
        raised = f"{type(error).__name__}: {error}"
    dist.barrier()
    batches.close()
    loader.close()
    return [steps, raised, threads()]
""",
    )
    assert got[1] == [2, "", 0]
    steps, raised, threads = got[0]
    assert 2 <= steps < MOST
    assert raised.startswith("WorkerStuck: after 2 s another rank has not said how far it is")
    assert threads == 0


def test_a_rank_that_is_stopped_is_noticed_after_the_time_out_of_the_process_group(job: Any) -> None:
    got = job(
        2,
        """
END = False
TIMEOUT = datetime.timedelta(seconds=3)

def body(world):
    loader = Loader(LONG, seed=3, world=world)
    batches, steps, raised = iter(loader), 0, ""
    pids = [None, None]
    dist.all_gather_object(pids, os.getpid())
    try:
        for batch in batches:
            steps += 1
            if world.rank == 1 and steps == 2:
                os.kill(os.getpid(), signal.SIGSTOP)
                break
    except Exception as error:
        raised = f"{type(error).__name__}: {error}"
    if world.rank == 0:
        os.kill(pids[1], signal.SIGCONT)
    loader.close()
    return [steps, raised]
""",
    )
    steps, raised = got[0]
    assert 2 <= steps < MOST
    assert raised.startswith("WorkerStuck: after 3 s another rank has not said how far it is")


def test_a_rank_that_begins_the_next_epoch_of_a_dataloader2_early_tells_the_others(job: Any) -> None:
    got = job(
        2,
        """
from headrace import DataLoader2, DistributedReadingService, IterableWrapper

def body(world):
    pipe = IterableWrapper(range(6001)).shuffle().sharding_filter().filter(most).batch(4)
    dl = DataLoader2(pipe, reading_service=DistributedReadingService())
    steps, told = 0, ""
    try:
        for batch in dl:
            steps += 1
            if world.rank == 1 and steps == 2:
                break
    except RanksDisagree as error:
        told = str(error)
    rest = [batch for batch in dl]
    dl.shutdown()
    return [steps, told, rest]
""",
    )
    (steps, told, rest), (early, nothing, others) = got
    assert (early, nothing) == (2, "")
    assert 2 <= steps < MOST
    assert "rank 1 has left epoch" in told
    assert "and begun the next epoch" in told
    assert len(rest) == len(others) > 20
    everything = flat(rest + others)
    assert len(set(everything)) == len(everything)


@pytest.mark.parametrize("ranks", depth([3], [2, 3]))
def test_programs_end_with_rounds_under_way(job: Any, ranks: int) -> None:
    # Nothing is closed. Ranks end after the same step, some earlier than others.
    got = job(
        ranks,
        """
END = False

def body(world):
    global loader, batches
    loader = Loader(SHAPES["indexed"], seed=3, world=world)
    batches = iter(loader)
    got = [next(batches) for _ in range(2)]
    threading.Event().wait(0.3 * (world.rank == 0))
    return got
""",
    )
    assert [len(rank) for rank in got] == [2] * ranks


def test_an_interpreter_ends_with_a_round_under_way(tmp_path: Path) -> None:
    # The whole end of an interpreter, with a thread that waits in native code for a rank that never comes.
    (tmp_path / "program.py").write_text(
        RANKS
        + """
END = False

def body(world):
    global loader, batches
    loader = Loader(SHAPES["indexed"], seed=3, world=world)
    batches = iter(loader)
    got = [next(batches) for _ in range(2)]
    threading.Event().wait(0.3 * (world.rank == 0))
    return got

rank(int(sys.argv[1]), 2)
print("done", flush=True)
"""
    )
    jobs = [warm.start(tmp_path / "program.py", [rank], tmp_path) for rank in range(2)]
    for process in jobs:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, "done\n"), err
        assert "Traceback" not in err
