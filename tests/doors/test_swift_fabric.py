"""The example with Lightning Fabric: two real processes, one dataset, one SwiftLoader in each."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.leaks import in_session

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.integrations
@pytest.mark.timeout(300)
def test_two_processes_of_fabric_share_one_dataset(tmp_path: Path) -> None:
    program = subprocess.Popen(
        [sys.executable, str(ROOT / "examples/fabric_example.py")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = program.communicate(timeout=250)
    except BaseException:
        os.killpg(program.pid, signal.SIGKILL)
        program.communicate()
        raise
    assert program.returncode == 0, err[-3000:]
    assert out.splitlines() == [
        *(f"epoch {epoch}: 15 steps in each of 2, every sample once: True" for epoch in range(3)),
        "y = 3.0x, learnt by 2 processes",
    ]
    assert not psutil.wait_procs(in_session(program.pid), timeout=5)[1]
