"""The quarantine file: what is written can be read, once each, and nothing else is taken for one."""

from pathlib import Path
from typing import Any

import pytest

from headrace import Loader, Pipe
from headrace.errors import BadOption
from headrace.observe.quarantine import About, Quarantine, QuarantinedSample, path_of_rank, read

ABOUT = About(("aa", "bb"), 7)
BAD = [(3, "map(fn=f)", "ValueError: three"), (9, "map(fn=f)", 'KeyError: "nine"\nand more')]


def positions(path: Path, about: About = ABOUT) -> list[int]:
    return [entry.position for entry in read(path)[about]]


def test_what_is_written_is_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "bad.jsonl"
    quarantine = Quarantine(path, ABOUT)
    assert not path.exists(), "no failure, no file"
    quarantine.write(0, 0, BAD)
    quarantine.write(1, 2, [(5, "collate()", "é")])
    assert read(path) == {
        ABOUT: [*(QuarantinedSample(0, 0, *bad) for bad in BAD), QuarantinedSample(1, 2, 5, "collate()", "é")]
    }


def test_a_run_that_goes_on_adds_to_the_file_and_each_sample_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    for skipped in (BAD[:1], BAD):
        Quarantine(path, ABOUT).write(0, 0, skipped)
    assert positions(path) == [3, 9]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_that_goes_on_lists_a_sample_once_wherever_it_was_stopped(workers: int, tmp_path: Path) -> None:
    pipe = Pipe.of(range(60)).shuffle().map(fails_sometimes).batch(5)

    def run(path: Path, state: Any, last: int | None) -> Any:
        """Up to the batch of this number, or to the end; the snapshot is of a few batches before."""
        with Loader(pipe, seed=1, workers=workers, on_error="skip", quarantine=path) as loader:
            if state is not None:
                loader.load_state_dict(state)
            for number, _ in enumerate(loader):
                if number <= max(0, (last or 0) - 3):
                    state = loader.state_dict()
                if number == last:
                    return state
        return None

    whole = tmp_path / "whole.jsonl"
    run(whole, None, None)
    listed = whole.read_text().splitlines()
    assert len(listed) == 1 + 12
    for stops in ([0], [4, 3], [11], [2, 2, 2, 2]):
        path = tmp_path / f"{stops}.jsonl"
        state = None
        for last in [*stops, None]:
            state = run(path, state, last)
        lines = [line for line in path.read_text().splitlines() if line != listed[0]]
        assert lines == listed[1:]


def fails_sometimes(x: int) -> int:
    if x % 5 == 0:
        raise ValueError(f"{x} is broken")
    return x


def test_what_is_listed_already_is_not_listed_by_a_loader_that_goes_on_itself(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    with Loader(Pipe.of(range(20)).map(fails_sometimes).batch(5), on_error="skip", quarantine=path) as loader:
        state = loader.state_dict()
        for _ in range(2):
            loader.load_state_dict(state)
            list(loader)
    assert len(path.read_text().splitlines()) == 1 + 4


def test_a_file_of_something_else_is_refused_when_the_loader_is_made(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b"\xff\n")
    with pytest.raises(BadOption, match=r"bad\.jsonl"):
        Loader(Pipe.of(range(20)), on_error="skip", quarantine=path)


def test_another_run_adds_to_the_file_and_is_told_apart(tmp_path: Path) -> None:
    path, other = tmp_path / "bad.jsonl", About(("aa", "cc"), 7)
    for about, skipped in ((ABOUT, BAD[:1]), (other, BAD), (ABOUT, BAD[1:])):
        Quarantine(path, about).write(0, 0, skipped)
    assert (positions(path), positions(path, other)) == ([3, 9], [3, 9])


def test_the_half_line_of_a_killed_run_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    Quarantine(path, ABOUT).write(0, 0, BAD)
    path.write_bytes(path.read_bytes()[:-10])
    assert positions(path) == [3]
    Quarantine(path, ABOUT).write(0, 0, [(11, "é", "later")])
    assert positions(path) == [3, 11]


def test_half_a_first_line_is_left_out_too(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(ABOUT.line()[:20])
    Quarantine(path, ABOUT).write(0, 0, BAD)
    assert positions(path) == [3, 9]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("hello\n", "line 1: not a JSON object"),
        ('{"version": 1}\n', "line 1: it does not say whose samples"),
        ('{"headrace": "quarantine", "version": 2}\n', "version 1"),
        ('{"headrace": "quarantine", "version": 1, "seed": 1}\n', "'pipe' is missing"),
        (ABOUT.line() + "[]\n", "line 2: not a JSON object"),
        (ABOUT.line() + '{"epoch": 1}\n', "line 2: 'stage' is missing"),
        (
            ABOUT.line() + '{"epoch": 1, "stage": 0, "position": "a", "op": "", "error": ""}\n',
            "line 2: epoch, stage and position",
        ),
    ],
)
def test_a_file_that_is_none_is_refused_with_the_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    with pytest.raises(BadOption, match=words):
        read(path)


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="No such file"):
        read(tmp_path / "no.jsonl")


def test_each_rank_has_a_file_of_its_own() -> None:
    path = Path("logs/bad.jsonl")
    assert [path_of_rank(path, 3, rank).name for rank in range(3)] == ["bad.jsonl", "bad.1.jsonl", "bad.2.jsonl"]
    assert path_of_rank(path, 1, 0) == path
