"""collate(): no value changes. The judge is torch's `default_collate`, and where torch rounds or fails, exactness."""

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.utils.data import default_collate

from headrace.loader import Loader
from headrace.ops.shape.collate import collate
from headrace.pipe.graph import Pipe
from tests.depth import depth


class Pair(NamedTuple):
    left: Any
    right: Any


Draw = Callable[[], Any]
"""One more sample of a form."""
WHOLE = st.one_of(
    st.integers(-3, 3),
    st.integers(2**53 - 2, 2**53 + 2),
    st.integers(2**63 - 2, 2**63 + 2),
    st.integers(2**64 - 2, 2**64 + 1),
    st.integers(-(2**63) - 1, -(2**63) + 2),
)
DTYPES = ["i1", "u1", "i4", "u4", "i8", "u8", "f4", "f8", "?"]


def scalar(draw: st.DrawFn, dtype: str) -> Any:
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        return kind.type(draw(st.integers(int(np.iinfo(kind).min), int(np.iinfo(kind).max))))
    return kind.type(draw(st.booleans()) if dtype == "?" else draw(st.floats(width=8 * kind.itemsize, allow_nan=False)))


@st.composite
def leaves(draw: st.DrawFn) -> Callable[[st.DrawFn], Any]:
    kind = draw(st.sampled_from(["whole", "float", "mixed", "bool", "text", "bytes", "scalar", "scalars", "array",
                                 "arrays", "tensor", "tensors"]))  # fmt: skip
    dtypes = draw(st.lists(st.sampled_from(DTYPES), min_size=1, max_size=2 if kind.endswith("s") else 1))
    shape = draw(st.sampled_from([(), (1,), (2, 3), (0, 2)]))

    def values(more: st.DrawFn) -> Any:
        dtype = more(st.sampled_from(dtypes))
        if kind == "whole":
            return more(WHOLE)
        if kind == "float":
            return more(st.floats(allow_nan=False))
        if kind == "mixed":
            return more(st.one_of(WHOLE, st.floats(allow_nan=False), st.booleans()))
        if kind in ("bool", "text", "bytes"):
            return more({"bool": st.booleans(), "text": st.text(max_size=3), "bytes": st.binary(max_size=3)}[kind])
        if kind in ("scalar", "scalars"):
            return scalar(more, dtype)
        array = np.array([scalar(more, dtype) for _ in range(math.prod(shape))], dtype).reshape(shape)
        return torch.from_numpy(array) if kind in ("tensor", "tensors") else array

    return values


Form = Callable[[st.DrawFn], Any]


def nested(inner: st.SearchStrategy[Form]) -> st.SearchStrategy[Form]:
    def build(kind: str, parts: list[Form]) -> Form:
        def values(more: st.DrawFn) -> Any:
            made = [part(more) for part in parts]
            if kind == "dict":
                return {f"k{i}": part for i, part in enumerate(made)}
            if kind == "named":
                return Pair(made[0], made[-1])
            return made if kind == "list" else tuple(made)

        return values

    return st.builds(
        build, st.sampled_from(["dict", "list", "tuple", "named"]), st.lists(inner, min_size=1, max_size=3)
    )


FORMS = st.recursive(leaves(), nested, max_leaves=4)


@st.composite
def batches(draw: st.DrawFn) -> list[Any]:
    form = draw(FORMS)
    return [form(draw) for _ in range(draw(st.integers(1, 4)))]


def exact(value: Any) -> Any:
    """A value as Python's own, with which nothing is rounded."""
    if isinstance(value, np.ndarray | np.generic | torch.Tensor):
        return exact(value.tolist())
    if isinstance(value, list | tuple):
        return [exact(part) for part in value]
    if isinstance(value, bool | int | float):
        return Fraction(value) if math.isfinite(value) else repr(value)
    return value


def transposed(samples: list[Any]) -> Any:
    """What collate is to make of samples, leaf by leaf."""
    first = samples[0]
    if isinstance(first, dict):
        return {key: transposed([s[key] for s in samples]) for key in first}
    if isinstance(first, list | tuple):
        return [transposed(list(column)) for column in zip(*samples, strict=True)]
    return exact(samples)


def plain(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: plain(part) for key, part in tree.items()}
    if isinstance(tree, list | tuple):
        return [plain(part) for part in tree]
    return exact(tree)


def leaves_of(tree: Any) -> list[Any]:
    if isinstance(tree, dict | list | tuple):
        return [leaf for part in (tree.values() if isinstance(tree, dict) else tree) for leaf in leaves_of(part)]
    return [tree]


def of_one_type(samples: list[Any]) -> bool:
    first, *others = [[(type(v), getattr(v, "dtype", None)) for v in leaves_of(s)] for s in samples]
    return all(first == other for other in others)


@settings(max_examples=depth(100, 10_000), deadline=None)
@given(batches())
@example([np.array([2**53 + 1]), np.array([0.5])])  # (seldom made by chance)
def test_values_are_those_of_the_samples_and_of_torch(samples: list[Any]) -> None:
    got, refused = None, ""
    try:
        got = collate(list(samples))
    except (ValueError, OverflowError) as error:
        refused = str(error)
    assert plain(got) == transposed(samples) if got is not None else "cannot collate" in refused and "sample" in refused
    if not of_one_type(samples):
        return  # torch rounds what is mixed
    try:
        want = default_collate(samples)
    except (RuntimeError, TypeError, OverflowError, ValueError):
        return
    assert got is not None, "torch can, so we can"
    assert plain(got) == plain(want)
    for ours, theirs in zip(leaves_of(got), leaves_of(want), strict=True):
        if isinstance(theirs, torch.Tensor):
            assert torch.as_tensor(ours).dtype == theirs.dtype
            assert tuple(ours.shape) == tuple(theirs.shape)


BIG = 2**63


@pytest.mark.parametrize(
    ("samples", "dtype"),
    [
        ([1, BIG], "u8"),
        ([BIG, 1], "u8"),
        ([np.int64(1), np.uint64(BIG)], "u8"),
        ([np.uint64(BIG), np.int64(1)], "u8"),
        ([np.full(2, 1), np.full(2, BIG, "u8")], "u8"),
        ([True, BIG], "u8"),
        ([1, 2.5], "f8"),
        ([2**53, 0.5], "f8"),
        ([2**64, 0.5, float("inf")], "f8"),
        ([np.int64(3), np.float32(0.5)], "f8"),
    ],
)
def test_numbers_of_several_kinds_meet_in_a_type_that_holds_them_all(samples: list[Any], dtype: str) -> None:
    got = collate(list(samples))
    assert got.dtype == dtype
    assert got.tolist() == [np.asarray(s).tolist() for s in samples]


@pytest.mark.parametrize(
    ("samples", "named"),
    [
        ([-1, BIG], "sample 0"),
        ([0, 2**64], "sample 1"),
        ([0, -BIG - 1], "sample 1"),
        ([0.5, 2**53 + 1], "sample 1"),
        ([0.5, 10**400], "sample 1"),
        ([np.uint64(BIG + 1), np.int64(-1)], "sample 1"),
        ([np.float64(0.5), np.int64(2**53 + 1)], "sample 1"),
        ([np.full(2, -1), np.full(2, BIG, "u8")], "sample 0"),
        ([np.zeros(2), np.full(2, 2**53 + 1)], "sample 1"),
        ([torch.zeros(2), torch.full((2,), 2**24 + 1)], "sample 1"),
    ],
)
def test_what_no_type_holds_is_an_error_that_names_the_sample_and_the_field(samples: list[Any], named: str) -> None:
    with pytest.raises(ValueError, match=rf"cannot collate field \['x'\].*{named}"):
        list(Pipe.of([{"x": s} for s in samples]).batch(2).collate())


@pytest.mark.parametrize("pad", [None, 0])
def test_dicts_with_other_keys_are_refused_whichever_comes_first(pad: int | None) -> None:
    few, many = {"a": 1}, {"a": 2, "b": 3}
    for samples, lacking in (([few, many], 0), ([many, few], 1)):
        with pytest.raises(KeyError, match=f"sample {lacking} of the batch has no key 'b', but 'a'; give all samples"):
            collate(samples, pad=pad)
    with pytest.raises(KeyError, match="sample 1 of the batch has no key 'a', but 'b'"):
        collate([{"a": 1}, {"b": 1}], pad=pad)


class Shape:
    """Something that collate cannot stack."""


class Circle(Shape):
    pass


class Square(Shape):
    pass


@dataclass
class Point:
    x: Any


FORMS_OF: dict[str, Any] = {
    "none": [None],
    "text": ["ab", np.str_("cd")],
    "bytes": [b"ab", np.bytes_(b"cd")],
    "number": [1, 1.5, True, np.float32(1), np.int64(3)],
    "time": [np.datetime64("2020-01-01")],
    "array": [np.zeros(2)],
    "array of objects": [np.array([{}, {}])],
    "tensor": [torch.zeros(2)],
    "dict": [{0: 1, 1: 2}, OrderedDict({0: 1, 1: 2})],
    "row": [[1, 2], (1, 2), Pair(1, 2)],
    "dataclass": [Point(1)],
    "shape": [Shape(), Circle(), Square()],
    "date": [date(2020, 1, 1), datetime(2020, 1, 1)],
    "set": [{1, 2}],
}
LIKE_ROWS = {"array", "array of objects", "tensor", "row"}
"""They have fields by their number."""


@pytest.mark.parametrize("pad", [None, 0])
@pytest.mark.parametrize("field", [False, True])
@pytest.mark.parametrize("first", FORMS_OF)
def test_samples_of_two_forms_and_none_are_an_error_that_names_field_and_sample(
    first: str, field: bool, pad: int | str | None
) -> None:
    """Never a list of both, in silence."""
    for other, of_other in FORMS_OF.items():
        if first == other != "none" or {first, other} == {"array", "array of objects"}:
            continue
        if {first, other} <= LIKE_ROWS and (first == "row" or pad == 0):
            continue
        for one, two in product(FORMS_OF[first], of_other):
            samples: list[Any] = [one, one, two] if first != "none" else [one, two]
            bad = 2 if first != "none" else 0
            where = r" field \['x'\]" if field else ""
            with pytest.raises(
                TypeError, match=f"^cannot collate{where}: .*sample {bad} .*leave some out with"
            ) as error:
                collate([{"x": sample} for sample in samples] if field else samples, pad=pad)
            assert "is None" in str(error.value) or f"type {type(two).__name__};" in str(error.value)


@pytest.mark.parametrize("first", [form for form in FORMS_OF if form != "none"])
def test_samples_of_one_form_are_not_refused(first: str) -> None:
    for one, two in product(FORMS_OF[first], repeat=2):
        collate([one, two])


@pytest.mark.parametrize("workers", [0, 1])
def test_a_map_without_return_is_an_error_that_names_the_op(workers: int) -> None:
    loader = Loader(Pipe.of(range(4)).map(print_it).batch(2).collate(), workers=workers)
    with loader, pytest.raises(TypeError, match=r"sample 0 of the batch is None \(does the function of a map") as error:
        list(loader)
    assert "in collate(), at position 0" in error.value.__notes__[0]


def print_it(x: int) -> None:
    pass


def test_masks_stay() -> None:
    got = collate([np.ma.masked_array([1, 2], [True, False]), np.ma.masked_array([3, 4], [False, False])])
    assert got.tolist() == [[None, 2], [3, 4]]
    assert collate([np.str_("a"), np.str_("b")]) == ["a", "b"]
