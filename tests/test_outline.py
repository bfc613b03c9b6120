"""What `print()` shows of a pipe, its plan and its figures: short, without defaults, within the terminal's width."""

import numpy as np
import pytest

from headrace import Loader, Pipe
from headrace.brief import brief


def augment(sample: int) -> int:
    return sample


def test_a_pipe_is_printed_as_it_was_written_without_defaults() -> None:
    pipe = Pipe.of(np.zeros((512, 8), np.float32)).shuffle().map(augment).batch(64, drop_last=True).collate()
    assert str(pipe).splitlines() == [
        "Pipe.of(ndarray float32[512, 8])",
        "  .shuffle()",
        "  .map(augment)",
        "  .batch(64, drop_last=True)",
        "  .collate()",
    ]
    assert repr(pipe) == ("Pipe.of(ndarray float32[512, 8]).shuffle().map(augment).batch(64, drop_last=True).collate()")


def test_pipes_that_meet_stand_before_the_op_that_joins_them() -> None:
    pipe = Pipe.of(range(10)).map(str).zip(Pipe.of([1, 2])).batch(4)
    assert str(pipe).splitlines() == [
        "┌ Pipe.of(range(0, 10))",
        "│   .map(str)",
        "├ Pipe.of([1, 2])",
        "zip()",
        "  .batch(4)",
    ]
    assert repr(pipe) == "Pipe.of(range(0, 10)).map(str).zip(Pipe.of([1, 2])).batch(4)"


def test_a_pipe_that_is_used_twice_is_shown_once() -> None:
    one, other = Pipe.of(range(10)).map(str).fork(2)
    assert str(one.zip(other)).count("range(0, 10)") == 1


def test_lines_fit_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Pipe.of([f"a name of many characters {i}" for i in range(3)]).shuffle(buffer_size=1000).map(augment)
    monkeypatch.setenv("COLUMNS", "40")
    assert max(map(len, str(pipe).splitlines())) == 40
    monkeypatch.setenv("COLUMNS", "100")
    described = [line for line in pipe.explain().splitlines() if "resume:" in line]
    assert len(described) == 3
    assert len({line.index("resume:") for line in described}) == 1  # a column
    assert max(map(len, described)) <= 100


def test_values_are_named_by_kind_and_size() -> None:
    assert [brief(v) for v in (lambda: 0, print, [1] * 20, {1: 2}, b"x", None)] == [
        "lambda",
        "print",
        "list of 20",
        "<dict>",
        "b'x'",
        "None",
    ]


def test_figures_are_a_table_with_units() -> None:
    with Loader(Pipe.of(range(64)).batch(8), workers=0) as loader:
        list(loader)
        shown = dict(line.split("  ", 1) for line in str(loader.stats()).splitlines())
    assert shown["batches"].strip() == "8"
    assert shown["waited for data"].strip().split(" ")[1] in ("s", "ms", "us")
    assert shown["workers"].strip() == "none"
    assert "samples skipped" not in shown
