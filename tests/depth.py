"""How much a test does: `reduced` in minutes for every change, `deep` for the full counts (scripts/test --deep).

    @settings(max_examples=depth(40, 2000))
    for seed in range(depth(3, 300)): ...

Hypothesis tests that set no count of their own follow the profile of the same name (tests/conftest.py).
"""

import os
from typing import TypeVar

T = TypeVar("T")

DEPTH = os.environ.get("HEADRACE_TEST_DEPTH", "reduced")
if DEPTH not in ("reduced", "deep"):
    raise ValueError(f"HEADRACE_TEST_DEPTH is {DEPTH!r}; it is 'reduced' or 'deep'")


def depth(reduced: T, deep: T) -> T:
    return deep if DEPTH == "deep" else reduced
