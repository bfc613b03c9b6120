"""Programs that are killed and go on come to exactly the weights of a run that was never stopped, dropout included.

Found here are all programs of the README, the docs and the examples that write a checkpoint by themselves: whatever
replaces a file with `os.replace`. (Lightning and transformers save torch's generators, and the place of the data is
tested with them: tests/doors/test_torch_trainers.py, tests/doors/test_trainer_fed.py.)
"""

import re
from pathlib import Path

import psutil
import pytest

from tests import warm
from tests.depth import depth
from tests.docs.test_blocks import NEEDS, PAGES, blocks, name
from tests.leaks import in_session

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 150.0
"""Seconds, on a busy machine."""
SAVES = "os.replace("
ELSEWHERE = {"text_pretrain.py": "tests/ops/test_pack_example.py", "docs/ranks.md": "tests/ranks/test_killed_rank.py"}
"""Example, or page -> the test that kills it."""
ON_PAGES = {
    f"{name(page)} {number}": code
    for page in PAGES
    if name(page) not in ELSEWHERE
    for number, code in enumerate(code for code in blocks(page, "python") if SAVES in code)
}
EXAMPLES = {path.name for path in (ROOT / "examples").rglob("*.py") if SAVES in path.read_text()}
RUN = [
    pytest.param(code, id=page, marks=pytest.mark.integrations if page.split()[0] in NEEDS else ())
    for page, code in ON_PAGES.items()
]

KILLED = """
import os, runpy, signal, sys

saved, moment, die_at = 0, sys.argv[1], int(sys.argv[2])
replace = os.replace


def counted(new, old):
    global saved
    saved += 1
    if saved == die_at and moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    replace(new, old)
    if saved == die_at and moment == "after":
        os.kill(os.getpid(), signal.SIGKILL)


os.replace = counted
names = runpy.run_path("train.py", run_name="__main__")
weights = names["model"].state_dict() if "model" in names else {"weights": names["weights"]}
with open("end.txt", "w") as file:
    file.write(repr({name: value.tolist() for name, value in weights.items()}))
"""
"""Runs train.py, which is killed when it has saved so many checkpoints, or has written the last of them but in part."""


def train(folder: Path, moment: str = "never", die_at: int = 0) -> int:
    """The exit code of a run, of which nothing is left."""
    sessions: list[int] = []
    done = warm.run(folder / "killed.py", [moment, die_at], folder, timeout=DEADLINE, begun=sessions.append)
    assert not psutil.wait_procs(in_session(*sessions), timeout=DEADLINE)[1], "workers end with the program"
    assert done.returncode in (0, -9), done.stderr[-3000:]
    return done.returncode


@pytest.mark.timeout(900)
@pytest.mark.parametrize("code", RUN)
def test_a_program_that_is_killed_comes_to_the_weights_of_one_that_was_not(code: str, tmp_path: Path) -> None:
    ends = []
    for run in ("whole", "killed"):
        folder = tmp_path / run
        folder.mkdir()
        (folder / "train.py").write_text(code)
        (folder / "killed.py").write_text(KILLED)
        if run == "killed":
            kills = [("before", 1), ("after", 2), ("before", 2), ("after", 3)]  # in the first epoch, and in the second
            for moment, die_at in depth(kills[1:3], kills):
                assert train(folder, moment, die_at) == -9
        assert train(folder) == 0
        ends.append((folder / "end.txt").read_text())
    assert ends[0] == ends[1]


def test_all_of_them_are_found_and_draw_random_numbers_in_the_training_step() -> None:
    promised = [page for page in PAGES if re.search(r"^## Train, be killed", page.read_text(), re.MULTILINE)]
    assert {name(page) for page in promised} == {page.split()[0] for page in ON_PAGES}
    for code in [*ON_PAGES.values(), *((ROOT / "examples" / example).read_text() for example in EXAMPLES)]:
        assert "dropout" in code.lower()


def test_the_others_are_killed_by_tests_of_their_own() -> None:
    assert set(ELSEWHERE) == EXAMPLES | {"docs/ranks.md"}
    for example, test in ELSEWHERE.items():
        assert Path(example).name in (ROOT / test).read_text()
