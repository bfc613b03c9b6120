"""Environments of the peers: torch first, one requirement at a time, and a reason where one cannot be had."""

from pathlib import Path

import pytest

from benchmarks import environments

Calls = list[tuple[str, ...]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    made: Calls = []

    def run(*command: str) -> str | None:
        made.append(command)
        return "no such wheel" if command[-1].startswith("grain") else None

    monkeypatch.setattr(environments, "run", run)
    return made


def test_torch_is_installed_first_and_alone_and_the_rest_under_its_constraint(tmp_path: Path, calls: Calls) -> None:
    found, absent = environments.pythons(["webdataset"], lambda line: None, tmp_path)
    assert found == {"webdataset": str(tmp_path / "peers" / "bin" / "python")}
    assert absent == {}
    torch, *rest = calls[1:]
    assert torch[-2:] == ("--quiet", "torch==2.13.0")
    assert [call[-3] for call in rest] == ["--constraint"] * len(rest)
    assert (tmp_path / "peers" / "constraints.txt").read_text() == "torch==2.13.0\n"


def test_what_cannot_be_installed_is_absent_with_its_reason_and_takes_nothing_with_it(
    tmp_path: Path, calls: Calls
) -> None:
    found, absent = environments.pythons(["grain", "grain_threads", "spdl"], lambda line: None, tmp_path)
    assert absent == {"grain": "no such wheel", "grain_threads": "no such wheel"}
    assert list(found) == ["spdl"]
    assert sum(call[-1].startswith("grain") for call in calls) == 1


def test_a_second_run_installs_only_what_failed(tmp_path: Path, calls: Calls) -> None:
    for _ in range(2):
        environments.pythons(["grain", "spdl"], lambda line: None, tmp_path)
    assert sum(call[-1].startswith("spdl") for call in calls) == 1
    assert sum(call[-1].startswith("grain") for call in calls) == 2


def test_the_folder_of_environments_is_none_of_gits_business(tmp_path: Path, calls: Calls) -> None:
    environments.pythons(["spdl"], lambda line: None, tmp_path)
    assert (tmp_path / ".gitignore").read_text() == "*\n"


def test_a_failed_command_answers_with_pips_last_error() -> None:
    import sys

    script = "print('ERROR: first'); print('ERROR: no matching distribution'); print('hint'); raise SystemExit(1)"
    assert environments.run(sys.executable, "-c", script) == f"{script}: ERROR: no matching distribution"
