"""The same job under every launcher that is here: torchrun, `headrace run`, `headrace run --engine mpi`, plain mpirun.

Ranks share pipes by arithmetic, by streams and by votes; what each rank gets is the same, whoever started it. And the
doctor names whoever did.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.ranks import env
from tests import warm
from tests.conftest import SRC
from tests.ranks.test_ranks import PROGRAM

pytest.importorskip("torch.distributed.run")
pytestmark = pytest.mark.timeout(150)

needs_mpirun = pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun (Open MPI) is not installed")
RUN = ["headrace.cli", "run", "--num-instances", "2"]
TORCHRUN = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", "2"]
LAUNCHERS = {
    "headrace run": [*RUN, sys.executable],
    "headrace run --engine mpi": [*RUN, "--engine", "mpi", sys.executable],
}
LAUNCHED = {name for launcher in (env.OWN, *env.LAUNCHERS) for name in launcher.names()}


def run(command: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    """(Launchers that are modules of Python's import torch: each is a fork of a process that has.)"""
    clean = {name: value for name, value in os.environ.items() if name not in LAUNCHED}
    environment = {**clean, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1"}
    if command[0] in (RUN[0], TORCHRUN[0]):
        return warm.run(warm.MODULE, command, folder, timeout=120, env=environment)
    return subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def by_torchrun(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return results("torchrun", tmp_path_factory.mktemp("torchrun"))


def results(launcher: str, folder: Path) -> list[dict[str, Any]]:
    """What each rank of tests/ranks/test_ranks.py gets."""
    program = folder / "program.py"
    program.write_text(PROGRAM)
    if launcher == "torchrun":
        done = warm.torchrun(2, program, [folder], folder, timeout=120)
    else:
        done = run([*LAUNCHERS[launcher], str(program), str(folder)], folder)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize(
    "launcher", ["headrace run", pytest.param("headrace run --engine mpi", marks=[needs_mpirun, pytest.mark.deep])]
)
def test_every_rank_gets_the_same_whoever_started_it(
    by_torchrun: list[dict[str, Any]], launcher: str, tmp_path: Path
) -> None:
    got = results(launcher, tmp_path)
    assert got[0].keys() == by_torchrun[0].keys()
    for name in got[0]:
        assert [rank[name] for rank in got] == [rank[name] for rank in by_torchrun], name


# Under torchrun and mpirun the lines of two ranks may meet in the middle.
DOCTOR = """
import sys
from contextlib import redirect_stdout
from headrace import World
from headrace.cli import main

with open(f"{sys.argv[1]}/{World.detect().rank}", "w") as file, redirect_stdout(file):
    sys.exit(main(["doctor"]))
"""


@pytest.mark.parametrize(
    ("command", "named"),
    [
        pytest.param([sys.executable], "none", id="none"),
        pytest.param(TORCHRUN, "torchrun", id="torchrun"),
        pytest.param([*RUN, sys.executable], "headrace run", id="headrace run"),
        pytest.param([*MPIRUN, sys.executable], "openmpi", marks=needs_mpirun, id="mpirun"),
    ],
)
def test_the_doctor_names_the_launcher(command: list[str], named: str, tmp_path: Path) -> None:
    program = tmp_path / "doctor.py"
    program.write_text(DOCTOR)
    done = run([*command, str(program), str(tmp_path)], tmp_path)
    assert done.returncode == 0, done.stderr
    ranks = 1 if named == "none" else 2
    for rank in range(ranks):
        said = (tmp_path / str(rank)).read_text()
        assert said.startswith(f"launcher   {named}\n")
        assert f"\n  world    rank {rank} of {ranks}" in said
