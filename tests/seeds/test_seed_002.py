"""Seed 002: distributed data loading in three steps, with the calls of the seed, on a generated data set.

The programs are the seed's. Only the data set is generated, and the imports of steps 2 and 3 are

    from headrace.replicas import popdist, poptorch
"""

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import warm
from tests.conftest import RunScript
from tests.depth import depth
from tests.programs import needs_mpirun

pytestmark = pytest.mark.timeout(180)

DATASET = """
    import torch

    class CIFAR10(torch.utils.data.Dataset):
        def __len__(self):
            return 50_000

        def __getitem__(self, i):
            if not 0 <= i < 50_000:
                raise IndexError(i)
            return torch.full((3, 32, 32), i / 50_000), i % 10
"""

PLAIN = """
    import numpy as np

    class CIFAR10:
        def __len__(self):
            return 50_000

        def __getitem__(self, i):
            return np.full((3, 32, 32), i / 50_000, np.float32), i % 10
"""

STEP1 = """
    import torch
    from generated import CIFAR10

    if __name__ == '__main__':
        dataset = CIFAR10()
        dataloader = torch.utils.data.DataLoader(dataset, batch_size=32, drop_last=True)
        for (data, label) in dataloader:
            print(f'* dataset size: {len(dataset)}\\n'
                  f'* dataloader size: {len(dataloader)}\\n'
                  f'* batch size: {data.shape[0]}')
            break
"""

STEP2 = """
    from headrace.replicas import poptorch
    from generated import CIFAR10

    if __name__ == '__main__':
        dataset = CIFAR10()
        options = poptorch.Options()
        dataloader = poptorch.DataLoader(options, dataset, batch_size=32, drop_last=True)
        for (data, label) in dataloader:
            print(f'* dataset size: {len(dataset)}\\n'
                  f'* dataloader size: {len(dataloader)}\\n'
                  f'* batch size: {data.shape[0]}')
            break
"""

STEP3 = """
    from headrace.replicas import popdist, poptorch
    from generated import CIFAR10

    if __name__ == '__main__':
        dataset = CIFAR10()
        options = popdist.poptorch.Options()
        dataloader = poptorch.DataLoader(options, dataset, batch_size=32, drop_last=True)
        for (data, label) in dataloader:
            print(f'* number of local replicas: {options.replication_factor}\\n'
                  f'* dataset size: {len(dataset)}\\n'
                  f'* dataloader size: {len(dataloader)}\\n'
                  f'* batch size: {data.shape[0]}')
            break
"""


def said(steps: int, batch: int, replicas: int | None = None) -> list[str]:
    front = [] if replicas is None else [f"* number of local replicas: {replicas}"]
    return [*front, "* dataset size: 50000", f"* dataloader size: {steps}", f"* batch size: {batch}"]


@pytest.fixture
def course(tmp_path: Path) -> Path:
    for name, code in (("generated", DATASET), ("step1", STEP1), ("step2", STEP2), ("step3", STEP3)):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(code))
    return tmp_path


STEPS = {"step1": said(1562, 32), "step2": said(390, 32), "step3": said(195, 64, replicas=2)}


@pytest.mark.parametrize("steps", depth([("step2", "step3")], [("step1",), ("step2",), ("step3",)]))
def test_a_step_on_four_processes_with_eight_replicas(course: Path, steps: tuple[str, ...]) -> None:
    """headrace run --num-replicas 8 --num-instances 4 python step.py

    Reduced: two of the steps, one after the other in the same processes, and samples that need no torch.
    """
    (course / "generated.py").write_text(textwrap.dedent(depth(PLAIN, DATASET)))
    files = [f"{step}.py" for step in steps]
    in_turn = f"import runpy; [runpy.run_path(file, run_name='__main__') for file in {files}]"
    program = [sys.executable, *(files if len(files) == 1 else ["-c", in_turn])]
    run = ["headrace.cli", "run", "--num-replicas", 8, "--num-instances", 4]
    done = warm.run(warm.MODULE, [*run, *program], course, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for step in steps for line in STEPS[step]]
    assert dict(tagged(done.stdout)) == dict.fromkeys(range(4), lines)
    told = [line for line in done.stderr.splitlines() if "leaves out" in line]
    assert len(told) == len(set(steps) - {"step1"})
    for line in told:
        assert line.startswith("[1,0]<stderr>:every epoch leaves out 2 batches and 16 samples")


def tagged(output: str) -> Iterator[tuple[int, list[str]]]:
    """The lines of each rank."""
    found = [re.fullmatch(r"\[1,(\d)\]<stdout>:(.*)", line) for line in output.splitlines()]
    for rank in range(4):
        yield rank, [match[2] for match in found if match and match[1] == str(rank)]
    assert all(found), output


@pytest.mark.parametrize(
    ("step", "lines"), [("step1", said(1562, 32)), ("step2", said(1562, 32)), ("step3", said(1562, 32, replicas=1))]
)
def test_without_a_launcher_each_step_reads_everything(
    run_script: RunScript, course: Path, step: str, lines: list[str]
) -> None:
    done = run_script((course / f"{step}.py").read_text(), warm=True)
    assert (done.stdout.splitlines(), done.returncode) == (lines, 0), done.stderr


def test_setting_the_replicas_by_hand_is_the_seeds_error(run_script: RunScript) -> None:
    done = run_script(
        """
        from headrace.replicas import popdist
        options = popdist.poptorch.Options()
        options.replicationFactor(2)
        """,
        warm=True,
    )
    assert done.returncode == 1
    # (The document shows it as code, where the original's backticks are not seen.)
    said = done.stderr.splitlines()[-1].replace("`", "")
    assert said == "RuntimeError: Cannot call replicationFactor with popdist.poptorch.Options"


@pytest.mark.integrations
@needs_mpirun
@pytest.mark.parametrize(("step", "lines"), depth([*STEPS.items()][-1:], [*STEPS.items()]))
def test_the_same_over_mpirun(run_script: RunScript, course: Path, step: str, lines: list[str]) -> None:
    run = "import sys; from headrace.cli import main; sys.exit(main(sys.argv[1:]))"
    program = [sys.executable, str(course / f"{step}.py")]
    done = run_script(run, "run", "--engine", "mpi", "--num-replicas", 8, "--num-instances", 4, *program, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    assert dict(tagged(done.stdout)) == dict.fromkeys(range(4), lines)
