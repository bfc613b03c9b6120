"""What a dataset's `state_dict()` may hold comes back as it was, or is refused by its path."""

from collections import OrderedDict
from collections.abc import Iterator
from enum import IntEnum
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset

from headrace.doors.torch.loader import DataLoader
from headrace.doors.torch.pack import pack, unpack
from headrace.errors import SnapshotRefused

FIELDS: Any = [("a", "<i4"), ("b", "<f8", (2,))]
ALIGNED = np.dtype([("a", "i1"), ("b", "f8")], align=True)


class Kind(IntEnum):
    ONE = 1


class Name(str):
    pass


@pytest.mark.parametrize(
    "array",
    [
        np.array([(1, (2.5, 3.5))], dtype=FIELDS),
        np.zeros(2, dtype=[("x", FIELDS), ("t", "M8[ns]")]),
        np.zeros(3, dtype=ALIGNED),
        np.arange(3, dtype=">i4"),
        np.array(["2020-01-01"], "M8[D]"),
        np.array(["a", "bcd"]),
        np.zeros((0, 3), np.float16),
        np.array(5),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.array([b"ab"], "V2"),
        np.array([np.longdouble("1.1")]),
    ],
    ids=lambda array: str(array.dtype),
)
def test_arrays_keep_their_type(array: Any) -> None:
    got = unpack(pack({"v": array}, "state"))["v"]
    assert type(got) is np.ndarray
    assert (got.dtype, got.shape) == (array.dtype, array.shape)
    assert np.array_equal(got, array)


FLOAT8 = [getattr(torch, name) for name in dir(torch) if name.startswith("float8_")]


@pytest.mark.parametrize("dtype", [*FLOAT8, torch.bfloat16, torch.bool, torch.complex64, torch.int64], ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (0, 3)], ids=str)
def test_tensors_keep_their_type(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.ones(shape).to(dtype)
    got = unpack(pack({"v": tensor}, "state"))["v"]
    assert type(got) is torch.Tensor
    assert (got.dtype, got.shape) == (tensor.dtype, tensor.shape)
    assert got.to(torch.complex64).tolist() == tensor.to(torch.complex64).tolist()


@pytest.mark.parametrize("lazy", [lambda t: t.conj(), lambda t: t.conj().imag, lambda t: t[:, ::2].conj().T])
def test_tensors_that_are_not_worked_out_yet_are(lazy: Any) -> None:
    tensor = lazy(torch.tensor([[1 + 2j, 3 - 1j, 4j]]))
    assert torch.equal(unpack(pack(tensor, "state")), tensor.resolve_conj().resolve_neg())


@pytest.mark.parametrize(
    "value",
    [
        np.ma.array([1, 2, 3], mask=[0, 1, 0]),
        np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        np.array([(1, 2.0)], dtype=np.dtype((np.record, [("a", "i4"), ("b", "f8")]))),
        np.ones((1, 2)).view(np.matrix),
        np.array([None]),
        np.zeros(1, dtype=[("a", "O")]),
        np.longdouble("1.1"),
        np.complex128(1j),
        torch.nn.Parameter(torch.ones(2)),
        torch.eye(2).to_sparse(),
        torch.ones(2, device="meta"),
        1j,
        {1, 2},
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_would_come_back_as_something_else_is_refused_by_its_path(value: Any) -> None:
    with pytest.raises(SnapshotRefused, match=r"state\['v'\]\[0\] is "):
        pack({"v": [value]}, "state")


@pytest.mark.parametrize(
    ("value", "becomes"),
    [
        ((1, (2, 3)), [1, [2, 3]]),
        (bytearray(b"xy"), b"xy"),
        (np.float32(0.5), 0.5),
        (np.float64(0.5), 0.5),
        (np.int64(2**62), 2**62),
        (np.bool_(True), True),
        (np.str_("abc"), "abc"),
        (Kind.ONE, 1),
        (Name("x"), "x"),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        ({Kind.ONE: 2}, {1: 2}),
    ],
    ids=repr,
)
def test_what_becomes_plainer_becomes_what_the_documentation_says(value: Any, becomes: Any) -> None:
    got = unpack(pack(value, "state"))
    assert got == becomes
    assert type(got) is type(becomes)
    assert repr(got) == repr(becomes)


class Tells(IterableDataset[int]):
    """A dataset with some value in its state."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        while self.at < 10:
            self.at += 1
            yield self.at

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at, "value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at, self.value = state["at"], state["value"]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_the_state_of_a_dataset_may_hold_tensors_of_any_type(dtype: torch.dtype, workers: int) -> None:
    loader = DataLoader(Tells(torch.ones(2).to(dtype)), 2, num_workers=workers)
    next(iter(loader))
    state = loader.state_dict()
    again = Tells(None)
    other = DataLoader(again, 2, num_workers=workers)
    other.load_state_dict(state)
    assert [batch.tolist() for batch in other] == [[3, 4], [5, 6], [7, 8], [9, 10]]
    if not workers:
        assert again.value.dtype == dtype
        assert again.value.float().tolist() == [1, 1]
