"""`headrace explain`: the plan, as text and as data."""

import json
from pathlib import Path

import pytest

from headrace.cli import main
from tests.cli.conftest import Headrace
from tests.cli.subjects import TEXT
from tests.cli.subjects import forgotten as forgotten


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "explained.py"
    path.write_text(TEXT)
    return path


def test_the_plan_is_printed(file: Path, headrace: Headrace) -> None:
    done = headrace("explain", f"{file}:pipe")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Pipe.sequence")
    assert "random access to 100 samples" in done.stdout


def test_the_data_has_stages_and_ops(file: Path, headrace: Headrace) -> None:
    done = headrace("explain", f"{file}:make", "--json", "--workers", "3")
    data = json.loads(done.stdout)
    assert (data["indexed"], data["workers"]) == (False, 3)
    assert [stage["feed"] for stage in data["stages"]] == ["strand", "refs"]
    assert len(data["ops"]) == len(data["fingerprint"]) == 4
    assert data["plan"]


def test_a_torch_style_loader_is_told_in_words(tmp_path: Path, headrace: Headrace) -> None:
    path = tmp_path / "torchy.py"
    path.write_text(
        "from headrace.doors.torch.loader import DataLoader\n"
        "loader = DataLoader(list(range(10)), batch_size=2, num_workers=1)\n"
        "keyed = DataLoader(list(range(10)), batch_size=2, num_workers=1, reproducible=True)\n"
    )
    done = headrace("explain", f"{path}:loader")
    assert "batch k is fetched by worker k mod num_workers" in done.stdout, done.stderr
    assert "any worker that is free" in headrace("explain", f"{path}:keyed").stdout


def test_a_number_of_workers_that_makes_no_sense_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", f"{file}:pipe", "--workers", "-1"]) == 2
    assert "--workers -1" in capsys.readouterr().err
