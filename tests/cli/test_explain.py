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
    assert done.stdout.startswith("Pipe.of(range(0, 100))")
    assert "random access to 100 samples" in done.stdout


def test_the_data_has_stages_and_ops(file: Path, headrace: Headrace) -> None:
    done = headrace("explain", f"{file}:make", "--json", "--workers", "3")
    data = json.loads(done.stdout)
    assert (data["indexed"], data["workers"]) == (False, 3)
    assert [stage["feed"] for stage in data["stages"]] == ["strand", "refs"]
    assert len(data["ops"]) == len(data["fingerprint"]) == 4
    assert data["plan"]


def test_a_torch_style_loader_tells_what_its_arguments_mean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "torchy.py"
    path.write_text(
        "from torch.utils.data import IterableDataset\n"
        "from headrace.doors.torch.loader import DataLoader\n"
        "class Stream(IterableDataset):\n"
        "    def __iter__(self): return iter(range(9))\n"
        "loader = DataLoader(list(range(10)), batch_size=2, num_workers=1)\n"
        "keyed = DataLoader(list(range(10)), batch_size=2, num_workers=1, reproducible=True)\n"
        "each = DataLoader(Stream(), batch_size=2, num_workers=2)\n"
        "once = DataLoader(Stream(), batch_size=2, num_workers=2, shard='auto')\n"
    )
    for name, words in {
        "loader": "batch k is fetched by worker k mod num_workers",
        "keyed": "any worker that is free fetches a batch",
        "each": "every worker reads the dataset for itself",
        "once": "the dataset is read once",
    }.items():
        assert main(["explain", f"{path}:{name}"]) == 0
        assert words in capsys.readouterr().out


def test_a_number_of_workers_that_makes_no_sense_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", f"{file}:pipe", "--workers", "-1"]) == 2
    assert "--workers -1" in capsys.readouterr().err
