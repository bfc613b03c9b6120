"""One walk through nested containers: classes stay, parts change."""

import sys
import time
from collections import OrderedDict, UserDict, defaultdict
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from headrace.nested import is_container, parts, rebuilt


class Pair(NamedTuple):
    x: Any
    y: Any


class Named(list[Any]):
    label = "kept"


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
