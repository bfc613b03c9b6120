"""One walk through nested containers: classes stay, parts change."""

import sys
import time
from collections import Counter, OrderedDict, UserDict, defaultdict
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from headrace import Loader, Pipe
from headrace.nested import is_container, parts, rebuilt, rough_bytes


class Pair(NamedTuple):
    x: Any
    y: Any


class Named(list[Any]):
    label = "kept"


class Labelled(tuple[Any, ...]):
    label: str


class Filled(dict[str, Any]):
    """As the outputs of Hugging Face's models."""

    def update(self, *given: Any, **more: Any) -> None:
        raise TypeError("it has all its fields")


@dataclass(frozen=True, slots=True)
class Fixed:
    x: Any
    made: Any = field(init=False, default=1)


def doubled(value: Any) -> Any:
    return 2 * value if isinstance(value, int) else rebuilt(value, doubled)


def test_containers_keep_their_class() -> None:
    given = [
        (1, [2]),
        Pair(1, {"a": 2}),
        Named([1]),
        OrderedDict(a=1),
        defaultdict(list, a=1),
        UserDict(a=1),
        Fixed([3]),
    ]
    got = doubled(given)
    assert [type(part) for part in got] == [type(part) for part in given]
    assert got[:2] == [(2, [4]), Pair(2, {"a": 4})]
    assert (got[2], got[2].label, got[4]["new"]) == ([2], "kept", [])
    assert (got[6].x, got[6].made) == ([6], 2)
    assert given[6].x == [3]  # type: ignore[attr-defined]


def test_what_cannot_be_filled_becomes_a_dict_and_what_is_no_container_stays() -> None:
    assert doubled(MappingProxyType({"a": 1})) == {"a": 2}
    kept = object()
    assert rebuilt(kept, doubled) is kept
    assert rebuilt("text", doubled) == "text"
    assert rebuilt(Fixed, doubled) is Fixed


def test_parts_and_containers() -> None:
    assert [*parts({"a": 1})] == [1]
    assert [*parts((1, 2))] == [1, 2]
    assert [*parts("text")] == []
    assert [is_container(v) for v in ({}, [], (), Fixed(1), Fixed, "text", 1)] == [True] * 4 + [False] * 3


def test_struct_sequences_are_rebuilt_where_something_in_them_is_new() -> None:
    moment = time.gmtime(0)
    assert rebuilt(moment, lambda part: part) is moment
    assert doubled(moment) == time.struct_time([2 * part for part in moment])
    assert rebuilt(sys.version_info, lambda part: part) is sys.version_info  # which nobody else can make


def test_a_counter_is_not_added_to_itself() -> None:
    assert rebuilt(Counter("aab"), lambda part: part) == Counter("aab")
    assert doubled(Counter("aab")) == Counter("aabaab")


def test_a_dict_that_refuses_update_is_rebuilt() -> None:
    assert doubled(Filled(a=1)) == {"a": 2}


def test_a_tuple_keeps_its_attributes() -> None:
    given = Labelled([1, [2]])
    given.label = "kept"
    got = doubled(given)
    assert (got, got.label) == ((2, [4]), "kept")


def test_the_shape_of_a_tensor_is_rebuilt() -> None:
    shape = pytest.importorskip("torch").zeros(2, 3).shape
    assert rebuilt([shape, [1]], lambda part: rebuilt(part, lambda inner: inner)) == [shape, [1]]


def test_sparse_tensors_which_do_not_say_their_size_are_read_from_streams_and_kept_in_caches() -> None:
    torch = pytest.importorskip("torch")
    sparse = torch.eye(3).to_sparse()
    assert rough_bytes([sparse]) > 0
    for pipe in (Pipe.of(lambda: iter([sparse])), Pipe.of([sparse]).in_memory_cache(size=1)):
        (read,) = Loader(pipe)
        assert read.to_dense().tolist() == torch.eye(3).tolist()
