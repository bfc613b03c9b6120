"""The law of frozen data: what comes back is what went in, in value, type and order."""

import copy
import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from headrace.memory.share import SharedDict, SharedList, SharedTuple, share


class Point(NamedTuple):
    x: float
    tags: list[str]


DTYPES = st.one_of(
    hnp.scalar_dtypes(),
    hnp.unicode_string_dtypes(),
    hnp.byte_string_dtypes(),
    hnp.array_dtypes(hnp.scalar_dtypes(), max_size=3),
)
ARRAYS = hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
NUMPY_SCALARS = hnp.arrays(hnp.scalar_dtypes(), ()).map(lambda array: array[()])
TEXT = st.text(st.characters(exclude_categories=()), max_size=8)  # lone surrogates too: file names have them
NUMBERS = st.one_of(
    st.booleans(),
    st.integers(),
    st.integers(2**63 - 2, 2**64 + 2),
    st.integers(-(2**63) - 2, -(2**63) + 2),
    st.floats(),
)
LEAVES = st.one_of(
    st.none(),
    NUMBERS,
    st.complex_numbers(),
    TEXT,
    st.binary(max_size=8),
    TEXT.map(np.str_),
    st.binary(max_size=8).map(np.bytes_),
    NUMPY_SCALARS,
    ARRAYS,
)
KEYS = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False),
        st.complex_numbers(allow_nan=False),
        TEXT,
        st.binary(max_size=8),
        st.integers(0, 9).map(np.int16),
    ),
    lambda keys: st.lists(keys, max_size=20).map(tuple),
    max_leaves=3,
)


def containers(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(values, max_size=6),
        st.lists(values, max_size=20).map(tuple),
        st.dictionaries(KEYS, values, max_size=5),
        st.dictionaries(TEXT, values, max_size=5),
        st.lists(st.fixed_dictionaries({"a": values, "b": values}, optional={"c": values}), max_size=5),
        st.lists(st.tuples(values, values), max_size=5),
        st.lists(values, max_size=3).map(lambda some: [*some, *some, *some]),
        st.builds(Point, values, values),
    )


ANYTHING = st.recursive(LEAVES, containers, max_leaves=12)


def assert_same(mine: Any, original: Any) -> None:
    """Equal in value and type, NaNs and the order of keys included; views stand for the containers they show."""
    if isinstance(original, list) or (type(original) is tuple and len(original) > 16):
        assert type(mine) in (type(original), SharedList if isinstance(original, list) else SharedTuple)
        assert len(mine) == len(original)
    elif isinstance(original, dict):
        assert type(mine) in (dict, SharedDict)
        assert len(mine) == len(original)
        assert_same(list(mine), list(original))
        assert_same(list(mine.values()), list(original.values()))
        for (key, value), theirs in zip(mine.items(), original.values(), strict=True):
            assert key in mine
            assert_same(value, theirs)
            assert_same(mine[key], theirs)
        return
    else:
        assert type(mine) is type(original)
    if isinstance(original, (list, tuple)):
        for one, other in zip(mine, original, strict=True):
            assert_same(one, other)
    elif isinstance(original, (np.ndarray, np.generic)) and not isinstance(original, (str, bytes)):
        assert mine.dtype == original.dtype
        assert mine.shape == original.shape
        assert mine.tobytes() == np.ascontiguousarray(original).tobytes()
    elif isinstance(original, (float, complex)):
        assert repr(mine) == repr(original)
    else:
        assert mine == original


@given(ANYTHING)
def test_what_comes_back_is_what_went_in(original: Any) -> None:
    shared = share(original)
    assert_same(shared, original)
    # In a list, so that it is pickled as a view: numpy's own pickle of a bare array forgets the byte order of text.
    listed = share([original])
    assert_same(pickle.loads(pickle.dumps(listed))[0], original)


@given(ANYTHING)
def test_a_deep_copy_is_the_plain_object_again(original: Any) -> None:
    thawed = copy.deepcopy(share(original))
    assert not isinstance(thawed, (SharedList, SharedTuple, SharedDict))
    assert_same(thawed, original)


@given(st.lists(st.integers(), max_size=12), st.integers(-15, 15), st.slices(12))
def test_indices_and_slices_mean_what_they_mean_for_a_list(original: list[int], index: int, part: slice) -> None:
    shared = share(original)
    assert shared[part] == original[part]
    assert shared[part][::-1] == original[part][::-1]
    assert list(reversed(shared)) == original[::-1]
    if -len(original) <= index < len(original):
        assert shared[index] == original[index]
        assert shared.index(original[index]) == original.index(original[index])
    else:
        with pytest.raises(IndexError, match=f"of {len(original)}$"):
            shared[index]


@given(st.dictionaries(KEYS, st.integers(), max_size=40), KEYS)
def test_a_key_is_found_exactly_when_the_dict_has_it(original: dict[Any, int], other: Any) -> None:
    shared = share([original, {}])[0]
    assert shared == original
    assert shared.get(other, "no") == original.get(other, "no")
    for key in original:
        assert shared[key] == original[key]
