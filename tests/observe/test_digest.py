"""Digests differ exactly when values do."""

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from headrace.observe.digest import digest
from tests.conftest import RunScript

Point = namedtuple("Point", "x y")


@dataclass
class Sample:
    x: Any
    name: str


class Plain:
    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x: Any) -> None:
        self.x = x


DIFFERENT: list[Any] = [
    None, True, 1, 1.0, -0.0, 0.0, 0, float("nan"), "1", b"1", "", b"", [], (), {}, set(), [1], (1,), [1, 2], [[1], 2],
    [1, [2]], [[1, 2]], {"a": 1}, {"a": 2}, {"b": 1}, OrderedDict(a=1), {1, 2}, {1, 3}, Point(1, 2), (1, 2),
    Sample(1, "a"), Sample(1, "b"), Plain(a=1), Plain(a=2), np.arange(3), np.arange(3.0), np.arange(3, dtype=np.int32),
    np.arange(4).reshape(2, 2), np.arange(4), np.array(["a", "b"]), np.array(["a", None], dtype=object), np.float32(1),
    torch.arange(3), torch.ones(3), torch.ones(3, dtype=torch.bfloat16), torch.zeros(0), torch.zeros(0, 2),
    torch.tensor(1.0), torch.ones(2, 2).to_sparse(), 1 + 2j, range(3), int, len, Slotted(1),
    Slotted(2),
]  # fmt: skip


def test_different_values_have_different_digests() -> None:
    seen: dict[bytes, Any] = {}
    for value in DIFFERENT:
        mine = digest(value)
        assert mine not in seen, f"{value!r} and {seen.get(mine)!r}"
        seen[mine] = value


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([float("nan")], [float("nan")]),
        ({2, 1, 3}, {3, 1, 2}),
        (np.arange(6).reshape(2, 3).T, np.ascontiguousarray(np.arange(6).reshape(2, 3).T)),
        (np.arange(10)[::2], np.array([0, 2, 4, 6, 8])),
        (torch.arange(6).view(2, 3).t(), torch.arange(6).view(2, 3).t().contiguous()),
        (Plain(b=2, a=1), Plain(a=1, b=2)),
    ],
)
def test_equal_values_have_equal_digests_however_they_lie_in_memory(one: Any, other: Any) -> None:
    assert digest(one) == digest(other)


def test_what_is_shared_inside_a_value_does_not_matter() -> None:
    part = [1, 2]
    assert digest([part, part]) == digest([[1, 2], [1, 2]])


def test_a_value_that_holds_itself_has_a_digest() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    assert digest(loop) == digest(loop)


def test_it_is_the_same_in_another_process(run_script: RunScript) -> None:
    code = "from headrace.observe.digest import digest; print(digest([1, 'a', {'k': {'x', 'y', 'z'}}, (2.5,)]).hex())"
    assert len({run_script(code, env={"PYTHONHASHSEED": seed}).stdout for seed in "123"}) == 1
