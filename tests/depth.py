"""How much a test does: `reduced` in minutes for every change, `deep` for the full counts (scripts/test --deep).

    @settings(max_examples=depth(40, 2000))
    for seed in range(depth(3, 300)): ...
    @pytest.mark.parametrize(("name", "workers"), across(CASES, (0, 1, 3)))

Hypothesis tests that set no count of their own follow the profile of the same name (tests/conftest.py).
"""

import os
from collections.abc import Iterable
from itertools import product
from typing import Any, TypeVar

T = TypeVar("T")

DEPTH = os.environ.get("HEADRACE_TEST_DEPTH", "reduced")
if DEPTH not in ("reduced", "deep"):
    raise ValueError(f"HEADRACE_TEST_DEPTH is {DEPTH!r}; it is 'reduced' or 'deep'")


def depth(reduced: T, deep: T) -> T:
    return deep if DEPTH == "deep" else reduced


def across(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Cases over several axes: every combination when deep; reduced, every value of every axis at least once.

    Reduced there are as many cases as the longest axis has values; a shorter one starts again from its first, one
    further each time, so that it is not always the same two values that meet.
    """
    lists = [list(axis) for axis in axes]
    if DEPTH == "deep":
        return list(product(*lists))
    longest = max(map(len, lists))
    return [tuple(values[(row + row // len(values)) % len(values)] for values in lists) for row in range(longest)]
