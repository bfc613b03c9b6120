"""The live line: what it says, where it is drawn, and that it changes nothing."""

import io
import sys
import time
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from headrace.loader import Loader, Stats
from headrace.observe.report import PlainLine, RichLine, TqdmLine, choose, progress, text, verdict
from headrace.pipe.graph import Pipe

START = Stats(
    epochs=1, batches=0, waited=0.0, busy={"stage 0 (positions)": 0.0}, ops={}, bytes=0, slots=0, copies=0, retries=0,
    skips=0,
)  # fmt: skip


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def after(**changes: Any) -> Stats:
    return replace(START, **changes)


def test_a_loop_that_hardly_waits_sets_the_pace() -> None:
    said = text(START, after(batches=20, waited=0.1), 2.0, 20, 100, 8)
    assert said == "20/100  80 samples/s  waiting 5 %  the training loop sets the pace"


def test_a_loop_that_waits_is_told_for_which_op() -> None:
    ops = {"map(fn=decode)": 1.5, "collate()": 0.2}
    then = after(batches=4, waited=1.6, ops=ops, busy={"stage 0 (positions)": 1.8})
    assert text(START, then, 2.0, 1234, None, 1) == (
        "1 234  2.00 samples/s  waiting 80 %  the loader sets the pace: map(fn=decode)"
    )


def test_what_is_in_no_op_is_transport() -> None:
    then = after(ops={"map(fn=f)": 0.1}, busy={"stage 0 (positions)": 2.0})
    assert verdict(START, then, 0.9) == "the loader sets the pace: transport"


def test_only_what_happened_since_the_last_look_counts() -> None:
    before = after(ops={"a": 9.0, "b": 0.0}, busy={"s": 9.0})
    assert verdict(before, after(ops={"a": 9.1, "b": 1.0}, busy={"s": 10.1}), 0.9).endswith(": b")


def test_before_any_ticket_was_timed_no_op_is_blamed() -> None:
    assert verdict(START, after(busy={"s": 1.0}), 0.9) == "the loader sets the pace"


def test_off_a_terminal_the_loader_is_iterated_as_it_is() -> None:
    with Loader(Pipe.of(range(12)).batch(4)) as loader:
        quiet = io.StringIO()
        shown = progress(loader, file=quiet)
        assert type(iter(shown)) is type(iter(loader))
        assert (list(shown), len(shown), quiet.getvalue()) == ([[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]], 3, "")


@pytest.mark.parametrize("kind", ["rich", "tqdm"])
def test_on_a_terminal_a_line_is_drawn_and_the_batches_are_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(kind)
    if kind == "tqdm":
        monkeypatch.setitem(sys.modules, "rich", None)
        monkeypatch.setitem(sys.modules, "rich.console", None)
    terminal = Terminal()
    assert isinstance(choose(terminal), RichLine if kind == "rich" else TqdmLine)
    with Loader(Pipe.of(range(40)).map(lambda x: (time.sleep(0.001), x)[1]).batch(4), seed=1) as loader:
        got = list(progress(loader, file=terminal, every=0.0))
        again = list(progress(loader, file=terminal, every=0.0))
    assert got == again == [list(range(k, k + 4)) for k in range(0, 40, 4)]
    drawn = terminal.getvalue()
    for words in ("epoch 0", "epoch 1", "10/10", "samples/s", "waiting", "sets the pace"):
        assert words in drawn


def test_a_broken_off_epoch_closes_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []

    class Noted:
        def show(self, text: str) -> None:
            pass

        def close(self) -> None:
            closed.append("closed")

    monkeypatch.setattr("headrace.observe.report.choose", lambda file: Noted())
    with Loader(Pipe.of(range(12)).batch(4)) as loader:
        epoch = iter(progress(loader))
        next(epoch)
        del epoch
    assert closed == ["closed"]


def test_a_notebook_has_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    auto = pytest.importorskip("tqdm.auto")
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    line = choose(io.StringIO())
    assert isinstance(line, TqdmLine)
    assert isinstance(line._bar, auto.tqdm)
    line.close()


def test_a_pipe_of_unknown_length_has_no_total() -> None:
    terminal = Terminal()
    pytest.importorskip("rich")
    with Loader(Pipe.of(lambda: iter(range(12))).batch(4)) as loader:
        assert len(list(progress(loader, file=terminal, every=0.0))) == 3
    assert "3/" not in terminal.getvalue()


def test_without_rich_and_tqdm_a_terminal_gets_a_plain_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rich", "rich.console", "rich.live", "tqdm"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setenv("COLUMNS", "11")
    page = Terminal()
    line = choose(page)
    assert isinstance(line, PlainLine)
    line.show("longer than the terminal")
    line.show("short")
    line.close()
    assert page.getvalue() == "\rlonger tha\rshort     \n"


def test_long_names_of_ops_lose_their_beginning() -> None:
    name = f"map({'package.' * 9}decode)"
    then = after(ops={f"3 {name}": 1.0}, busy={"s": 1.0})
    assert verdict(START, then, 0.9) == f"the loader sets the pace: …{name[-39:]}"
