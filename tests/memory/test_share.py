"""Frozen data behaves as the containers it was made from, and refuses what it cannot hold or must not do."""

import copy
import math
from collections import OrderedDict, namedtuple
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

import headrace
from headrace.memory.share import SharedTuple, share
from tests.leaks import descriptors


class Point(NamedTuple):
    x: float
    tags: list[str]


class WithAttributes(namedtuple("WithAttributes", "a")):
    pass


def records(count: int) -> list[dict[str, Any]]:
    return [{"id": i, "name": f"img_{i}.jpg", "label": i % 10} for i in range(count)]


def test_views_are_a_sequence_and_a_mapping_and_equal_to_plain_ones() -> None:
    plain = [{"a": [1, 2], "b": None}, {"a": [], "b": "x"}]
    shared = share(plain)
    assert isinstance(shared, Sequence)
    assert isinstance(shared[0], Mapping)
    assert shared == plain
    assert plain == shared
    assert shared == share(plain)
    assert shared != plain[:1]
    assert shared[0] != plain[1]
    assert plain[1] in shared
    as_tuple: Any = tuple(plain)
    assert shared != as_tuple
    numbers: Any = range(20)
    as_list, as_tuple = share(list(numbers)), share(tuple(numbers))
    assert as_list != as_tuple
    assert {**shared[1]} == plain[1]


def test_only_a_long_tuple_is_a_view_and_it_is_hashed_as_a_tuple() -> None:
    short, long = tuple(range(16)), tuple(range(17))
    shared: Any = share([short, long, {long: "found"}])
    assert type(shared[0]) is tuple
    assert type(shared[1]) is SharedTuple
    assert hash(shared[1]) == hash(long)
    assert shared[2][long] == shared[2][next(iter(shared[2]))] == "found"
    with pytest.raises(TypeError, match="unhashable"):
        hash(shared)


def test_equal_numbers_are_one_key_and_unhashable_ones_are_an_error() -> None:
    shared = share({1: "one", "1": "text", b"1": "bytes"})
    assert shared[1.0] == shared[True] == shared[np.int8(1)] == "one"
    assert shared["1"] == "text"
    assert (2 in shared, "2" in shared, frozenset() in shared) == (False, False, False)
    with pytest.raises(TypeError, match="unhashable"):
        shared[[1]]
    with pytest.raises(KeyError, match="'missing'"):
        share({"a": 1})["missing"]


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x[0].__setitem__("id", 1),
        lambda x: x[0].update(id=1),
        lambda x: x[0].pop("id"),
        lambda x: x[0].setdefault("id", 3),
        lambda x: x.__setitem__(0, None),
        lambda x: x.__delitem__(0),
        lambda x: x.append(None),
        lambda x: x.sort(),
        lambda x: x.__iadd__([1]),
        lambda x: x[:2].clear(),
        lambda x: SharedTuple(x, range(20)).__setitem__(0, 1),
    ],
)
def test_a_change_is_refused_and_the_message_says_how_to_get_a_plain_copy(change: Any) -> None:
    shared = share(records(3))
    with pytest.raises(TypeError, match=r"is frozen: .* copy\.deepcopy"):
        change(shared)
    assert shared == records(3)


def test_copies_can_be_changed() -> None:
    shared = share(records(2))
    record = shared[0].copy()
    record["image"] = "loaded"
    assert shared[0] == records(1)[0]
    some = copy.copy(shared)
    assert isinstance(some, list)
    some.append(record)
    assert len(shared) == 2
    array = copy.deepcopy(share([np.arange(3)]))[0]
    array[0] = 7


def test_arrays_are_read_only_windows_onto_the_memory() -> None:
    shared: Any = share({"a": np.arange(6.0).reshape(2, 3).T, "b": [np.zeros(2, "M8[ns]"), np.zeros((0, 4), "M8[ns]")]})
    first, again = shared["a"], shared["a"]
    assert np.shares_memory(first, again)
    assert first.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert shared["b"][1].shape == (0, 4)
    with pytest.raises(ValueError, match="read-only"):
        first[0, 0] = 1
    with pytest.raises(ValueError, match="cannot set WRITEABLE"):
        first.flags.writeable = True


def test_a_large_view_has_a_short_repr() -> None:
    shared: Any = share({"rows": records(1000), "deep": [[[[[[[[1]]]]]]]]})
    assert repr(shared["rows"][:1]) == "SharedList([SharedDict({'id': 0, 'name': 'img_0.jpg', 'label': 0})])"
    assert "... 994 more" in repr(shared["rows"])
    assert len(repr(shared)) < 1000
    assert repr(share(tuple(range(17)))) == "SharedTuple((0, 1, 2, 3, 4, 5, ... 11 more))"


def test_sharing_what_is_shared_changes_nothing() -> None:
    shared = share([1])
    assert share(shared) is shared


def test_the_public_name_is_the_function() -> None:
    assert headrace.share is share


def test_torch_tensors_are_windows_too() -> None:
    torch = pytest.importorskip("torch")
    tensors = [
        torch.arange(6).reshape(2, 3).T,
        torch.tensor(2.5),
        torch.zeros(0, 3),
        torch.ones(3, dtype=torch.bfloat16),
    ]
    shared = share(tensors)
    for mine, original in zip(shared, tensors, strict=True):
        assert mine.dtype == original.dtype
        assert torch.equal(mine, original)
    assert shared[0].data_ptr() == shared[0].data_ptr()
    assert copy.deepcopy(shared)[1] == 2.5


def test_torch_collates_views() -> None:
    data = pytest.importorskip("torch.utils.data")
    shared = share([{"x": [1, 2.5], "pair": ("a", i)} for i in range(2)])
    batch = data.default_collate([shared[0], shared[1]])
    assert batch["x"][0].tolist() == [1, 1]
    assert batch["pair"][0] == ("a", "a")


# Refusals -------------------------------------------------------------------------------------------------------


def _local_named_tuple() -> Any:
    Local = namedtuple("Local", "a")
    return Local(1)


def _with_attributes() -> Any:
    value = WithAttributes(1)
    value.extra = 1  # type: ignore[attr-defined]
    return value


def _self_containing() -> list[Any]:
    loop: list[Any] = [1]
    loop.append([loop, loop])
    return loop


@pytest.mark.parametrize(
    ("original", "message"),
    [
        ([*range(17), {"label": [0, 1, {2}]}], r"\[17\]\['label'\]\[2\] is a set\. share\(\) takes"),
        (object(), r"the object is a object"),
        ([{"a": 1}, OrderedDict(a=1)], r"\[1\] is a collections\.OrderedDict"),
        ({"p": Point(1.0, [object()])}, r"\['p'\]\.tags\[0\] is a object"),  # type: ignore[list-item]
        ([{1: 2}, {frozenset(): 1}], r"\[1\] key frozenset\(\) is a frozenset"),
        ([{(1, frozenset()): 1}], r"\[0\] key \(1, frozenset\(\)\) is a tuple that cannot be looked up"),
        ([{math.nan: 1}], r"\[0\] key nan is a float that cannot be looked up"),
        ([bytearray(b"x")], r"\[0\] is a bytearray"),
        ([np.array([object()])], r"\[0\] has the dtype object"),
        ([np.ma.array([1])], r"\[0\] is a numpy\.ma\.(core\.)?MaskedArray"),
        ([_local_named_tuple()], r"\[0\] is a .*Local, which cannot be imported"),
        ([_with_attributes()], r"\[0\] is a .*WithAttributes with attributes of its own"),
        (_self_containing(), r"nested deeper than 50 levels: does it contain itself\?"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_frozen_is_refused_with_its_place(original: Any, message: str) -> None:
    before = descriptors()
    with pytest.raises(TypeError, match=message):
        share(original)
    assert descriptors() == before


def test_tensors_that_would_lose_something_are_refused() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"\['w'\] is a tensor that requires a gradient"):
        share({"w": torch.ones(1, requires_grad=True)})
    with pytest.raises(TypeError, match=r"\[0\] is a tensor that is on meta"):
        share([torch.ones(1, device="meta")])


def test_fifty_levels_of_everything_are_within_the_contract() -> None:
    deep: Any = 1
    for level in range(50):
        deep = ([None, deep], ("x", deep), {"deep": deep, 1: None}, {"deep": deep})[level % 4]
    assert share(deep) == deep
    with pytest.raises(TypeError, match=r"nested deeper than 50 levels"):
        share([deep])


# Size -----------------------------------------------------------------------------------------------------------


def size_of(view: Any) -> int:
    return len(view._column.segment.memory)


def test_records_are_stored_by_column() -> None:
    assert size_of(share(records(10_000))) < 10_000 * 25


def test_an_object_that_is_referred_to_often_is_stored_once() -> None:
    meta = {"classes": [f"class {i}" for i in range(1000)]}
    assert size_of(share([{"id": i, "meta": meta} for i in range(1000)])) < 50_000
    doubled: list[Any] = [1]
    for _ in range(40):
        doubled = [doubled, doubled]
    assert size_of(share(doubled)) < 10_000


def test_dicts_with_ever_different_keys_stay_small() -> None:
    assert size_of(share([{f"key {i}": i, "all": i} for i in range(1000)])) < 60_000
