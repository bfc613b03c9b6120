"""`headrace bench`: finds the benchmarks, or says where they are."""

import sys
from pathlib import Path

import pytest

from headrace.cli import bench, main

PROGRAM = """
import json, sys
from pathlib import Path
if "--json" in sys.argv:
    Path(sys.argv[sys.argv.index("--json") + 1]).write_text(json.dumps({"args": sys.argv[1:-2]}) + "\\n")
    print("a table")
else:
    print("ran", *sys.argv[1:], flush=True)
sys.exit(3 if "failing" in sys.argv else 0)
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__main__.py").write_text(PROGRAM)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    return tmp_path


def test_it_runs_the_benchmarks_of_the_repository_around_it(
    repository: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "small", "--rounds", "2", "--subjects", "headrace", "--quick"]) == 0
    assert capfd.readouterr().out == "ran small --subjects headrace --rounds 2 --quick\n"


def test_json_is_all_that_is_printed(repository: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "small", "--json"]) == 0
    out, err = capfd.readouterr()
    assert (out, err) == ('{"args": ["small"]}\n', "a table\n")


def test_its_exit_code_is_that_of_the_benchmarks(repository: Path) -> None:
    assert main(["bench", "failing"]) == 3


def test_without_the_repository_it_says_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "repository", lambda: None)
    assert main(["bench"]) == 2
    assert "in the repository" in capsys.readouterr().err


def test_the_repository_beside_the_package_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    root = bench.repository()
    assert root is not None
    assert (root / "src" / "headrace").is_dir()
    assert sys.executable
