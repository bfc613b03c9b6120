"""Law 2, in place: a buffer that user code fills again for every sample gives every sample as it was when it came."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from headrace import Loader, Pipe
from headrace.observe.digest import digest
from tests.laws.pipes import KINDS

SIZE = 150
"""More than two blocks."""


class Pair(NamedTuple):
    name: str
    data: Any


@dataclass
class Record:
    name: str
    data: Any


class Forms:
    """Buffers that are made once, and filled with a number."""

    def small(self, i: int) -> Any:
        self._small[:] = i
        return self._small

    def large(self, i: int) -> Any:
        self._large[:] = i
        return self._large

    def view(self, i: int) -> Any:
        self._large[:] = i
        return self._large[::3]

    def listed(self, i: int) -> Any:
        self._list[0] = i
        return self._list

    def nested(self, i: int) -> Any:
        self._dict["data"][:] = i
        self._dict["label"] = i
        self._dict["more"][0]["deep"] = i
        return self._dict

    def named(self, i: int) -> Any:
        return Pair(str(i), self.small(i))

    def recorded(self, i: int) -> Any:
        self._record.name = str(i)
        self._record.data = self.small(i)
        return self._record

    def raw(self, i: int) -> Any:
        self._bytes[:] = bytes([i]) * 100
        return self._bytes

    def tensor(self, i: int) -> Any:
        import torch

        self.small(i)
        return torch.from_numpy(self._small)

    def everything(self, i: int) -> Any:
        return tuple(getattr(self, form)(i) for form in FORMS if form != "everything")

    def __init__(self) -> None:
        self._small, self._large = np.zeros(10), np.zeros(4000)
        self._list: list[Any] = [0, "text"]
        self._dict: dict[str, Any] = {"data": np.zeros(600), "label": 0, "more": [{"deep": 0}]}
        self._record = Record("", None)
        self._bytes = bytearray(100)


FORMS = [name for name in vars(Forms) if not name.startswith("_")]


class Reused:
    """A map-style dataset that returns the same buffer each time."""

    def __init__(self, form: str) -> None:
        self.form = form
        self._fill: Callable[[int], Any] | None = None

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, i: int) -> Any:
        if self._fill is None:  # each worker has buffers of its own
            self._fill = getattr(Forms(), self.form)
        return self._fill(i)

    def __call__(self, i: int) -> Any:
        return self[i]

    def stream(self) -> Iterator[Any]:
        return (self[i] for i in range(SIZE))


def pipes(form: str) -> dict[str, Pipe[Any]]:
    reused = Reused(form)
    return {
        "dataset": Pipe.of(reused),
        "map": Pipe.of(range(SIZE)).map(reused),
        "stream": Pipe.of(reused.stream),
        "filtered": Pipe.of(reused).filter(lambda _: True),
        "mapped after a filter": Pipe.of(range(SIZE)).filter(lambda _: True).map(reused),
        "batched after a filter": Pipe.of(reused).filter(lambda _: True).batch(7),
    }


def as_they_came(form: str) -> list[str]:
    reused = Reused(form)
    return [digest(copy.deepcopy(reused[i])) for i in range(SIZE)]


@pytest.mark.parametrize(("kind", "forms"), [("inline", FORMS), ("thread1", ["everything"]), ("fork2", ["everything"])])
def test_a_buffer_that_is_filled_again_gives_each_sample_as_it_came(kind: str, forms: list[str]) -> None:
    pytest.importorskip("torch")
    wrong = []
    for form in forms:
        want = as_they_came(form)
        for name, pipe in pipes(form).items():
            with Loader(pipe, **KINDS[kind]) as loader:
                samples = [sample for found in loader for sample in (found if "batched" in name else [found])]
            if [digest(sample) for sample in samples] != want:
                wrong.append((form, name))
    assert not wrong


@pytest.mark.parametrize("kind", ["server3", "spawn2", "forkserver2"])
def test_every_kind_of_process_does_the_same(kind: str) -> None:
    with Loader(pipes("nested")["dataset"], **KINDS[kind]) as loader:
        assert [digest(sample) for sample in loader] == as_they_came("nested")
