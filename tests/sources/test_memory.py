"""What an in-memory source holds stays as it is, whatever a map does to its samples."""

import copy
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from headrace.loader import Loader
from headrace.observe.digest import digest
from headrace.pipe.graph import Pipe
from headrace.sources.memory import COPIED


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclass
class Record:
    x: Any


@dataclass(frozen=True, slots=True)
class Fixed:
    x: Any


def spoil(value: Any) -> Any:
    """Everything inside that can be changed, changed in place."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        value += np.ones((), value.dtype)
    elif isinstance(value, torch.Tensor):
        value += 1
    elif isinstance(value, dict):
        for part in value.values():
            spoil(part)
        value["more"] = len(value)
    elif isinstance(value, list | deque):
        for part in value:
            spoil(part)
        value.append(len(value))
    elif isinstance(value, bytearray):
        value += b"!"
    elif isinstance(value, set):
        value.add(len(value))
    elif isinstance(value, tuple | np.ndarray):
        for part in value:
            spoil(part)
    elif isinstance(value, Record | Fixed):
        spoil(value.x)
        if isinstance(value, Record):
            value.x = (value.x, 1)
    return value


def row(i: int) -> Any:
    return np.full(3, i, "f4")


ragged = np.empty(4, object)
ragged[:] = [[i] for i in range(4)]
SOURCES: dict[str, Any] = {
    "arrays": [row(i) for i in range(4)],
    "rows of an array": np.arange(12.0).reshape(4, 3),
    "tensors": [torch.full((2,), float(i)) for i in range(4)],
    "rows of a tensor": torch.arange(12.0).reshape(4, 3),
    "a tensor dataset": torch.utils.data.TensorDataset(torch.arange(12.0).reshape(4, 3), torch.arange(4)),
    "lists": [[i, [i]] for i in range(4)],
    "dicts": [{"x": row(i), "deep": {"y": [i]}} for i in range(4)],
    "tuples": tuple((row(i), (i, [i])) for i in range(4)),
    "named tuples": deque(Pair(row(i), {"i": i}) for i in range(4)),
    "dataclasses": [Record(row(i)) for i in range(4)],
    "frozen dataclasses": [Fixed([row(i)]) for i in range(4)],
    "ordered dicts": [OrderedDict(x=[i]) for i in range(4)],
    "byte arrays and sets": [(bytearray(b"x"), {i}) for i in range(4)],
    "arrays of objects": ragged,
    "values of a dict": {i: [i] for i in range(4)}.values(),
    "what a function returns": None,
}
KEPT = [[i] for i in range(4)]
SOURCES["what a function returns"] = lambda: KEPT


def held(source: Any) -> bytes:
    return digest([*(source() if callable(source) else source)])


@pytest.mark.parametrize("name", SOURCES)
def test_changing_samples_in_place_changes_nothing_for_the_next_epoch(name: str) -> None:
    source = SOURCES[name]
    before = held(source)
    want = digest([spoil(copy.deepcopy(s)) for s in (source() if callable(source) else source)])
    pipe = Pipe.of(source).map(spoil)
    for how in ({}, {"workers": 2, "kind": "thread"}):
        with Loader(pipe, **how) as loader:
            assert [digest(list(loader)) for _ in range(3)] == [want] * 3, how
    assert held(source) == before


def test_processes_give_what_inline_gives() -> None:
    def change(sample: Any) -> Any:  # (of this function's own, so that workers need not import this module and torch)
        sample["x"] += 1
        sample["deep"]["y"].append(0)
        return sample

    pipe = Pipe.of(SOURCES["dicts"]).cycle(2).map(change)
    with Loader(pipe) as inline, Loader(pipe, workers=2, start_method="fork") as loader:
        for _ in range(2):
            assert digest(list(inline)) == digest(list(loader))


def test_what_cannot_be_changed_is_not_copied() -> None:
    fixed = [1, "text", b"bytes", 1.5, None, np.float32(2), range(3)]
    still = np.arange(3)
    still.flags.writeable = False
    for given in (*fixed, still):
        assert next(iter(Pipe.of([given]))) is given
    assert next(iter(Pipe.of([(1, ("a", b"b"))]))) == (1, ("a", b"b"))


class Counted(np.ndarray):  # type: ignore[type-arg]
    """An array that counts its copies."""

    copies = 0

    def copy(self, order: Any = "C") -> Any:
        Counted.copies += 1
        return super().copy(order)


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_sample_that_nobody_meets_on_its_way_is_copied_once(shuffled: bool) -> None:
    data = [np.arange(3).view(Counted), np.arange(3).view(Counted)]
    pipe = Pipe.of(data).shuffle() if shuffled else Pipe.of(data)
    Counted.copies = 0
    with Loader(pipe) as loader:
        for sample in loader:
            sample[:] = 7
    assert Counted.copies == 2
    assert all((kept == np.arange(3)).all() for kept in data)


def test_a_large_array_is_looked_at_and_refuses_to_be_changed() -> None:
    large = np.zeros(COPIED + 1, "u1")
    (sample,) = Pipe.of([large])
    assert np.shares_memory(sample, large)
    with pytest.raises(ValueError, match="read-only"):
        sample += 1
    assert large.flags.writeable


def test_samples_of_a_kind_that_nobody_knows_and_of_a_dataset_are_given_as_they_are() -> None:
    class Image:
        pass

    class Dataset:
        kept = Image(), [1]

        def __len__(self) -> int:
            return 2

        def __getitem__(self, i: int) -> Any:
            return self.kept[i]

    image = Image()
    assert next(iter(Pipe.of([image]))) is image
    assert [s is k for s, k in zip(Pipe.of(Dataset()), Dataset.kept, strict=True)] == [True, True]


def test_a_sample_that_holds_itself_is_copied_too() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    (sample,) = Pipe.of([loop])
    assert sample is not loop
    assert sample[1] is sample


@pytest.mark.parametrize("index", [[3, 1, 0, 2], [7, 8, 9, 7], list("abcd")], ids=str)
@pytest.mark.parametrize("workers", [0, 1])
def test_a_series_is_read_by_position_and_not_by_its_labels(index: list[Any], workers: int) -> None:
    pandas = pytest.importorskip("pandas")
    series = pandas.Series([10, 20, 30, 40], index=index)
    for pipe in (Pipe.of(series), Pipe.of(series).filter(bool), Pipe.of(range(4)).zip(Pipe.of(series)).map(last)):
        with Loader(pipe, workers=workers) as loader:
            assert list(loader) == [10, 20, 30, 40]


def last(pair: tuple[int, int]) -> int:
    return pair[1]
