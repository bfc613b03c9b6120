"""Bucket: batches of like lengths within a budget, the same for any workers; everything comes once."""

import json
from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe
from headrace.errors import BadOption

LENGTHS = (3, 1, 4, 1, 5, 9, 2, 6)
EXAMPLES = {
    "BucketWindows": lambda of, at: of([[1] * n for n in LENGTHS]).bucket(12, window=5),
    "BucketBatches": lambda of, at: Pipe.of([[1] * n for n in LENGTHS]).sized(LENGTHS).bucket(12, window=5),
}
DOCUMENTS = [[i] * n for i, n in enumerate(np.random.default_rng(0).integers(1, 60, 700).tolist())]


def odd(document: list[int]) -> bool:
    return document[0] % 2 == 1


def test_batches_hold_like_lengths_within_the_budget_and_every_sample_once() -> None:
    batches = list(Loader(Pipe.of(DOCUMENTS).shuffle().filter(odd).bucket(1200, window=700)))
    assert sorted(d[0] for batch in batches for d in batch) == list(range(1, 700, 2))
    assert all(max(map(len, batch)) * len(batch) <= 1200 for batch in batches)
    filled = sum(max(map(len, batch)) * len(batch) for batch in batches)
    assert sum(len(d) for batch in batches for d in batch) / filled > 0.9


def test_the_batches_are_the_same_for_any_workers_and_resume_anywhere() -> None:
    pipe = Pipe.of(DOCUMENTS).shuffle().filter(odd).bucket(400, window=100)
    whole = [repr(batch) for batch in Loader(pipe, seed=2)]
    with Loader(pipe, seed=2, workers=2, kind="thread") as loader:
        samples = iter(loader)
        before = [repr(next(samples)) for _ in range(7)]
        state = json.loads(json.dumps(loader.state_dict()))
    other = Loader(pipe, seed=2)
    other.load_state_dict(state)
    assert before + [repr(batch) for batch in other] == whole


def test_the_length_may_be_told_and_one_that_is_over_the_budget_is_an_error() -> None:
    def half(text: Any) -> int:
        return len(text) // 2

    assert sorted(map(len, Loader(Pipe.of(["abcd"] * 9).bucket(8, length=half)))) == [2, 3, 4]
    with pytest.raises(BadOption, match="has 51 tokens, a step at most 50"):
        list(Loader(Pipe.of(DOCUMENTS).bucket(50)))
