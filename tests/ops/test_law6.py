"""Law 6: every op and every source keeps the contract of `headrace.op`. A new one that has no example fails here."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace.ops
import headrace.sources
import headrace.tables
from headrace import Pipe
from headrace.observe.digest import digest
from headrace.op import Op
from headrace.pipe import cursor
from headrace.sources.stream import StreamWrapper
from headrace.testing.checks import check_pipe
from tests.depth import across
from tests.ops.law6_examples import ELSEWHERE, TEXT, At, examples, stream
from tests.sources.faulty import serving

ROOT = Path(__file__).resolve().parents[2]


def discovered() -> dict[str, type[Op[Any, Any]]]:
    """Every class of ops, by name."""
    found: dict[str, type[Op[Any, Any]]] = {}
    for package in (headrace.ops, headrace.sources, headrace.tables):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for name, thing in vars(importlib.import_module(module.name)).items():
                if inspect.isclass(thing) and issubclass(thing, Op) and thing.__module__ == module.name:
                    assert name not in found, f"two ops are called {name}"
                    found[name] = thing
    return found


OPS = discovered()
ALL = examples()


class Contents:
    """Compares samples; a stream by its name and by its content, which is read once."""

    def __init__(self) -> None:
        self._read: dict[int, tuple[StreamWrapper, Any]] = {}

    def __call__(self, a: Any, b: Any) -> bool:
        return digest(self._plain(a)) == digest(self._plain(b))

    def _plain(self, sample: Any) -> Any:
        if isinstance(sample, StreamWrapper):
            if id(sample) not in self._read:
                with sample:
                    self._read[id(sample)] = (sample, sample.read())
            return (sample.name, self._read[id(sample)][1])
        if isinstance(sample, dict):
            return {key: self._plain(value) for key, value in sample.items()}
        if isinstance(sample, list | tuple):
            return type(sample)(self._plain(part) for part in sample)
        return sample


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(dict.fromkeys(("0.txt", "1.txt"), TEXT)) as server:
        yield server.url


@pytest.fixture
def at(tmp_path: Path, url: str) -> At:
    made = At(tmp_path, url)
    made.make()
    return made


def test_every_op_has_an_example_or_a_reason() -> None:
    known = {*ALL, *ELSEWHERE}
    assert not OPS.keys() - known, "a new op has an example: EXAMPLES in the file of its tests (see law6_examples.py)"
    assert not known - OPS.keys(), "these ops are gone: take their examples away"
    assert not ALL.keys() & ELSEWHERE.keys()


@pytest.mark.parametrize("name", ELSEWHERE)
def test_an_op_without_an_example_is_covered_by_the_named_file(name: str) -> None:
    reason, file, call = ELSEWHERE[name]
    assert reason
    assert call in (ROOT / file).read_text(), f"{file} no longer covers {name}"


@pytest.mark.parametrize(
    ("name", "kind", "checkpoint"),
    [*across(ALL, ["sequence", "stream"], [1]), *across(ALL, ["stream", "sequence"], [1000])],
)
def test_an_op_obeys_the_law(name: str, kind: str, checkpoint: int, at: At, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursor, "CHECKPOINT", checkpoint)
    pipe = ALL[name](Pipe.of if kind == "sequence" else stream, at)
    assert any(type(node.op) is OPS[name] for node in pipe.nodes()), f"the example holds no {name}"
    check_pipe(pipe, same=Contents(), workers=checkpoint == 1000)
