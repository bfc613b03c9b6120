"""A rank killed by SIGKILL under `headrace run --max-restarts 3`: the job goes on from its last checkpoint, exactly.

Two pipes are read side by side, one by arithmetic and one by counts. Each has a checkpoint, saved and loaded by the
lines of docs/ranks.md. Steps after it are done again; what counts of an attempt is what it delivered up to the
checkpoint that the next one loads.
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.docs.test_blocks import ROOT, blocks

pytest.importorskip("torch", reason="the torch engine needs torch")

(LINES,) = (code for code in blocks(ROOT / "docs" / "ranks.md", "python") if "def resume(" in code)
"""What the page says to write."""

PROGRAM = """
import json, os, signal, sys
from itertools import zip_longest
import torch.distributed as dist
import torch
from headrace import Loader, Pipe, World

folder = sys.argv[1]
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.init_process_group("gloo")
world = World.detect()

class Numbers:
    def __init__(self, n): self.n = n
    def __len__(self): return self.n
    def __getitem__(self, i): return i

def most(x): return x % 5 > 1

pipes = {
    "indexed": Pipe.of(Numbers(211)).shuffle().batch(4),
    "filtered": Pipe.of(Numbers(411)).shuffle().filter(most).batch(4),
}
loaders = {name: Loader(pipe, seed=7, world=world, workers=1) for name, pipe in pipes.items()}
model.load_state_dict({name: torch.full_like(w, 0.5) for name, w in model.state_dict().items()})
losses = open(f"{folder}/losses {attempt} {world.rank}", "w")
logs = {name: open(f"{folder}/{name} {attempt} {world.rank}", "w") for name in pipes}
for name, loader in loaders.items():
    CHECKPOINT = f"{folder}/{name}.pt"
    begun = resume(loader)
    print(begun, file=logs[name])
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step, batches in enumerate(zip_longest(*loaders.values()), begun):
    torch.manual_seed(step * world.ranks + world.rank)
    for name, batch in zip(pipes, batches):
        if batch is not None:
            print(json.dumps(batch), file=logs[name], flush=True)
    loss = model(torch.ones(16, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for weight in model.parameters():
        dist.all_reduce(weight.grad)
    optimizer.step()
    print(json.dumps([step, loss.item(), sum(weight.sum().item() for weight in model.parameters())]), file=losses)
    losses.flush()
    if attempt == 0 and step == 12 and world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()  # as a training step would
    for name, loader in loaders.items() if step % 5 == 4 else ():
        CHECKPOINT = f"{folder}/{name}.pt"
        save(loader, step + 1)
for loader in loaders.values():
    loader.close()
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, "subprocess.CompletedProcess[str]"]:
    folder = tmp_path_factory.mktemp("killed")
    (folder / "program.py").write_text(LINES + PROGRAM)
    command = ["headrace.cli", "run", "--num-instances", "2", "--max-restarts", "3", sys.executable]
    done = warm.run(warm.MODULE, [*command, folder / "program.py", folder], folder, timeout=150)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder, done


def attempts(folder: Path, name: str) -> list[list[tuple[int, list[list[int]]]]]:
    """Of each attempt, for each rank: the steps it began after, and the batches it got."""
    found = []
    for attempt in range(2):
        logs = [folder / f"{name} {attempt} {rank}" for rank in range(2)]
        if all(log.exists() for log in logs):
            lines = [log.read_text().splitlines() for log in logs]
            found.append([(int(first), [json.loads(line) for line in rest]) for first, *rest in lines])
    return found


pytestmark = pytest.mark.timeout(200)


@pytest.mark.parametrize("name", ["indexed", "filtered"])
def test_what_was_delivered_before_the_checkpoint_and_after_it_is_exact(job: Any, name: str) -> None:
    folder, _ = job
    counted: Counter[int] = Counter()
    tries = attempts(folder, name)
    for number, ranks in enumerate(tries):
        until = tries[number + 1][0][0] if number + 1 < len(tries) else None
        for begun, batches in ranks:
            kept = batches if until is None else batches[: max(0, until - begun)]
            assert until is None or begun + len(kept) == until
            counted.update(x for batch in kept for x in batch)
    expected = set(range(211)) if name == "indexed" else {x for x in range(411) if x % 5 > 1}
    assert max(counted.values()) == 1
    assert set(counted) == expected


def test_steps_after_the_checkpoint_are_done_again_with_the_same_batches(job: Any) -> None:
    folder, done = job
    assert done.stderr.count("headrace: all ranks are started again (1 of 3)") == 1
    assert "failed (exitcode: -9) local_rank: 1" in done.stderr
    first, second = attempts(folder, "indexed")
    assert [begun for begun, _ in second] == [10, 10]
    # Steps 0..12 were delivered when the rank died, and every fifth step there is a checkpoint.
    again = [batch for _, batches in second for batch in batches[:3]]
    assert again == [batch for _, batches in first for batch in batches[10:13]]


def test_with_dropout_that_follows_from_step_and_rank_the_model_is_that_of_a_run_without_a_kill(job: Any) -> None:
    folder, _ = job
    for rank in range(2):
        first, second = (
            [json.loads(line) for line in (folder / f"losses {attempt} {rank}").read_text().splitlines()]
            for attempt in range(2)
        )
        assert [step for step, *_ in first[10:13]] == [step for step, *_ in second[:3]] == [10, 11, 12]
        assert first[10:13] == second[:3]
