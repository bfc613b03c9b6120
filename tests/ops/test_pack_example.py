"""The examples that pre-train, with DDP and with Lightning: killed on 2 ranks, gone on with on 4, the same rows.

Gone on with on 2 ranks, the first comes to exactly the weights of a run that was never killed.
"""

import json
import sys
from pathlib import Path
from subprocess import run

import pytest

from headrace import Loader
from tests.depth import depth

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"}


def global_steps(folder: Path, ranks: int) -> dict[int, list[str]]:
    steps: dict[int, list[str]] = {}
    for path in sorted(folder.glob(f"rows-*-of-{ranks}.json")):
        steps.setdefault(int(path.name.split("-")[1]), []).extend(json.loads(path.read_text()))
    return steps


@pytest.mark.skipif(depth(0, 1) == 0, reason="two jobs with torch: runs under scripts/test --deep")
@pytest.mark.timeout(800)
def test_a_killed_job_goes_on_with_more_ranks_over_the_same_rows(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    check(tmp_path, "text_pretrain.py", ["--port", "29513"])


@pytest.mark.deep
@pytest.mark.timeout(800)
def test_a_killed_job_comes_to_the_weights_of_one_that_was_not(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    ends = []
    for name, runs in (("whole", [[]]), ("killed", [["--die-at", "7"], ["--die-at", "9"], []])):
        program = [sys.executable, str(ROOT / "examples" / "text_pretrain.py"), "--folder", str(tmp_path / name)]
        for options in runs:
            job = [*program, "--steps", "15", "--port", "29515", *options]
            done = run(job, env=ENVIRONMENT, capture_output=True, timeout=380, check=False)
            assert (b"SIGKILL" in done.stderr) if options else (done.returncode == 0), done.stderr.decode()
        ends.append(torch.load(tmp_path / name / "checkpoint.pt", weights_only=True))
    assert all(end["step"] == 15 for end in ends)
    whole, killed = (end["model"] for end in ends)
    assert all(torch.equal(whole[name], killed[name]) for name in whole)


@pytest.mark.integrations
@pytest.mark.timeout(800)
def test_a_killed_job_of_lightning_goes_on_with_more_ranks_over_the_same_rows(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    check(tmp_path, "text_lightning.py", [])


def check(tmp_path: Path, example: str, port: list[str]) -> None:
    import hashlib

    import numpy as np

    program = [sys.executable, str(ROOT / "examples" / example), "--folder", str(tmp_path), "--steps", "16"]
    killed = run([*program, "--ranks", "2", "--die-at", "12"], env=ENVIRONMENT, capture_output=True, timeout=380)
    assert b"SIGKILL" in killed.stderr
    ended = run([*program, "--ranks", "4", *port], env=ENVIRONMENT, capture_output=True, timeout=380)
    assert ended.returncode == 0, ended.stderr.decode()
    before, after = global_steps(tmp_path, 2), global_steps(tmp_path, 4)
    assert sorted(before) == list(range(12))
    assert sorted(after) == list(range(10, 16))  # from the checkpoint at step 10
    assert all(before[step] == after[step] for step in (10, 11))
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        from text_pretrain import rows  # type: ignore[import-not-found]
    finally:
        sys.path.pop(0)
    alone = Loader(rows([str(tmp_path / "web"), str(tmp_path / "books")], 8), seed=7)
    for step, batch in zip(range(16), alone, strict=False):
        digests = [hashlib.sha256(np.asarray(row).tobytes()).hexdigest()[:12] for row in batch["input"]]
        assert (before | after)[step] == digests
