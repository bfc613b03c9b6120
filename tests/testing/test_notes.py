"""What an op says to `here.rest()` comes back out of a snapshot, or is refused where it is said."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from headrace.loader import Loader
from headrace.op import Op
from headrace.pipe import cursor
from headrace.pipe.graph import Pipe
from headrace.testing import check_op


@dataclass(frozen=True, slots=True)
class Totals(Op[int, list[int]]):
    """Running sums of even and odd numbers: holds two numbers, says so at each rest."""

    form: str = "list"

    def flow(self, *inputs: Any) -> Iterator[list[int]]:
        samples, here = inputs
        sums = list(here.note.values() if isinstance(here.note, dict) else here.note or (0, 0))
        for sample in samples:
            sums[sample % 2] += sample
            yield list(sums)
            here.rest({"list": list(sums), "dict": {"even": sums[0], "odd": sums[1]}, "tuple": tuple(sums)}[self.form])


def endless() -> Iterator[int]:
    return iter(range(50))


@pytest.mark.parametrize("form", ["list", "dict", "tuple"])
@pytest.mark.parametrize("at", [0, 7, 50])
def test_a_note_of_any_plain_form_comes_back(form: str, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursor, "CHECKPOINT", 3)
    pipe = Pipe.of(endless).then(Totals(form))
    whole = list(pipe)
    loader = Loader(pipe)
    batches = iter(loader)
    front = [next(batches) for _ in range(at)]
    again = Loader(pipe)
    again.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    assert front + (list(again) if at < 50 else []) == whole


def pairs() -> Iterator[tuple[str, int]]:
    return ((f"{i // 2}.{'ab'[i % 2]}", i) for i in range(6000))


def lines() -> Iterator[tuple[str, str]]:
    return ((f"file{i // 2}", f"line {i}") for i in range(6000))


@pytest.mark.parametrize("pipe", [Pipe.of(pairs).webdataset(), Pipe.of(lines).lines_to_paragraphs()])
def test_our_own_ops_that_note_text_resume(pipe: Pipe[Any]) -> None:
    whole = list(pipe)
    for at in (1100, 2500):
        loader = Loader(pipe)
        batches = iter(loader)
        front = [next(batches) for _ in range(at)]
        again = Loader(pipe)
        again.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        assert front + list(again) == whole


@pytest.mark.parametrize("note", [{1, 2}, object(), b"bytes", 1j])
def test_a_note_that_no_snapshot_can_hold_is_refused_where_it_is_said(note: Any) -> None:
    @dataclass(frozen=True, slots=True)
    class Odd(Op[int, int]):
        def flow(self, *inputs: Any) -> Iterator[int]:
            samples, here = inputs
            for sample in samples:
                yield sample
                here.rest(note)

    with pytest.raises(TypeError, match=rf"rest\(\).*{type(note).__name__}"):
        list(Pipe.of(endless).then(Odd()))


def test_check_op_finds_an_op_that_refuses_its_own_notes() -> None:
    @dataclass(frozen=True, slots=True)
    class Forgetful(Totals):
        def accepts(self, note: Any) -> bool:
            return note is None

    check_op(Totals(), range(9))
    with pytest.raises(AssertionError, match="accepts"):
        check_op(Forgetful(), range(9))
