"""The recipe that is killed and goes on does what it says: it trains to the same weights as without the kill."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
(PROGRAM,) = re.findall(
    r"^## Train, be killed, go on\n.*?^```python\n(.*?)^```$",
    (ROOT / "docs" / "recipes.md").read_text(),
    re.MULTILINE | re.DOTALL,
)
TOLD = PROGRAM.replace(
    "            if step % 10 == 9:\n", "            print(step, flush=True)\n            if step % 10 == 9:\n"
).replace('print(f"trained', 'torch.save(model.state_dict(), "end.pt")\nprint(f"trained')
"""The same, which says how far it has come and keeps what it came to."""
DEADLINE = 150.0
"""Seconds, on a busy machine."""


def start(folder: Path) -> "subprocess.Popen[str]":
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(TOLD)
    environment = {"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "train.py"], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_the_recipe_is_killed_and_comes_to_the_same_weights(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with start(tmp_path / "whole") as whole:
        assert whole.communicate(timeout=DEADLINE)[0].endswith("trained 3 epochs\n")
    for kill_after in (5, 12, 45):  # before the first checkpoint, in the first epoch, in the second
        with start(tmp_path / "killed") as killed:
            assert killed.stdout is not None
            for _ in range(kill_after):
                killed.stdout.readline()
            family = psutil.Process(killed.pid).children(recursive=True)
            os.kill(killed.pid, signal.SIGKILL)
            assert not psutil.wait_procs(family, timeout=DEADLINE)[1]  # workers end with the program
    with start(tmp_path / "killed") as rest:
        assert rest.communicate(timeout=DEADLINE)[0].endswith("trained 3 epochs\n")
    ends = [torch.load(tmp_path / name / "end.pt") for name in ("whole", "killed")]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
