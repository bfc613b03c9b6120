"""Every example runs, in small, as its first lines say, and ends with what it promises to show."""

import re
import sys
from pathlib import Path

import psutil
import pytest

from tests import warm
from tests.depth import depth
from tests.leaks import in_session
from tests.workers.ray_head import head

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
LAST = {
    "doors/torch.py": "resumed after 5 batches of epoch 2: the 15 that were left, and no other",
    "doors/datapipes.py": "the same batches without workers",
    "doors/replicas.py": "50 steps of 20 samples, 1000 different samples in this process",
    "doors/swift.py": "together every sample once",
    "threads.py": "stopped after 10 batches and went on, inline, from N bytes",
    "tar_shards.py": "stopped after 5 batches, went on from N bytes with 3 workers: the same batches",
    "train_tabular.py": "price = 3.0 x area -0.5 x age: it was made as 3.0 and -0.5",
}
"""Example -> its last line. (tests/docs/test_readme.py runs killed_worker.py.)"""
LAST_WITH_MORE = {
    "train_jax.py": "weights [1.0, -2.0, 0.5], and 22 batches were the same after a stop",
    "lightning_trainer.py": "20 steps; from step 7 on, with other workers, the same 13 batches",
    "hf_trainer.py": "12 steps; from step 8 on the same 4 batches",
}
"""The same, for those that need another library."""


def run(folder: Path, program: Path, *words: object) -> list[str]:
    """The lines that a program prints, run in a folder of its own; all of it is gone afterwards."""
    sessions: list[int] = []
    done = warm.run(program, words, folder, timeout=100, begun=sessions.append)
    assert done.returncode == 0, done.stderr[-3000:]
    _, alive = psutil.wait_procs(in_session(*sessions), timeout=5)
    assert not alive
    return done.stdout.splitlines()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("example", list(LAST))
def test_an_example_shows_what_it_says(example: str, tmp_path: Path) -> None:
    last = run(tmp_path, EXAMPLES / example)[-1]
    assert re.sub(r"\d+ bytes", "N bytes", last) == LAST[example]


@pytest.mark.timeout(120)
@pytest.mark.deep
def test_pictures_are_shared_by_two_ranks(tmp_path: Path) -> None:
    """Reduced: the ranks are forks, with torchrun's variables."""
    launch = ("headrace.cli", "run", "--num-instances", 2, sys.executable)
    program, words = depth((warm.RANKS, (2,)), (warm.MODULE, launch))
    *_, last = run(tmp_path, program, *words, EXAMPLES / "train_images.py", tmp_path)
    assert "epoch 2: 2 ranks, 7 steps each, every picture once" in last
    assert (tmp_path / "snapshot.pt").exists()


@pytest.mark.timeout(120)
def test_the_replicas_of_two_processes_have_different_samples(tmp_path: Path) -> None:
    launch = ("headrace.cli", "run", "--num-replicas", 4, "--num-instances", 2, sys.executable)
    lines = run(tmp_path, warm.MODULE, *launch, EXAMPLES / "doors" / "replicas.py")
    told = "25 steps of 20 samples, 500 different samples in this process"
    assert sorted(lines) == [f"[1,0]<stdout>:{told}", f"[1,1]<stdout>:{told}"]


@pytest.mark.integrations
@pytest.mark.timeout(300)
@pytest.mark.parametrize("example", list(LAST_WITH_MORE))
def test_an_example_with_another_library_shows_what_it_says(example: str, tmp_path: Path) -> None:
    assert run(tmp_path, EXAMPLES / example)[-1] == LAST_WITH_MORE[example]


@pytest.mark.integrations
@pytest.mark.timeout(300)
def test_actors_deliver_the_same_stream(tmp_path: Path) -> None:
    with head() as address:
        lines = run(tmp_path, EXAMPLES / "ray_actors.py", address)
    assert lines[-1] == "20 batches from 2 actors: the same samples, order and random values as without"


def test_every_example_is_run_by_a_test() -> None:
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for example in EXAMPLES.rglob("*.py"):
        assert example.name in tests, f"no test runs {example.relative_to(ROOT)}"
