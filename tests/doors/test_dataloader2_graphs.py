"""Thirty random graphs: the stream does not depend on the workers, and goes on from a state taken anywhere."""

import json
from typing import Any

import pytest

from tests.depth import depth
from tests.doors.datapipe_graphs import graph, loader, read

pytestmark = pytest.mark.filterwarnings("ignore:a shuffle stands after sharding_filter")
GRAPHS = range(depth(5, 30))


@pytest.mark.parametrize("number", GRAPHS)
def test_the_stream_is_equal_for_any_number_of_workers(number: int) -> None:
    pipe = graph(number)
    expected = read(pipe, 0)
    for workers in (1, 2, 4):
        assert read(pipe, workers) == expected


@pytest.mark.parametrize("context", ["forkserver", "spawn"])
@pytest.mark.parametrize("number", range(depth(1, 30)))
def test_the_stream_is_equal_for_any_way_to_start_workers(number: int, context: str) -> None:
    pipe = graph(number)
    assert read(pipe, 2, context) == read(pipe, 0)


def states(pipe: Any, workers: int) -> tuple[list[str], list[dict[str, Any]]]:
    """The samples of an epoch, and the state before each of them and at the end."""
    with loader(pipe, workers) as dl:
        samples = iter(dl)
        taken = [json.loads(json.dumps(dl.state_dict()))]
        out = []
        for sample in samples:
            out.append(repr(sample))
            taken.append(json.loads(json.dumps(dl.state_dict())))
    return out, taken


@pytest.mark.parametrize("number", GRAPHS)
def test_a_state_taken_anywhere_resumes_at_another_number_of_workers(number: int) -> None:
    pipe = graph(number)
    out, taken = states(pipe, 2)
    for at, state in enumerate(taken):
        with loader(pipe, 0) as dl:
            dl.load_state_dict(state)
            assert out[:at] + [repr(sample) for sample in dl] == out, f"resumed after {at} samples"
    everywhere = range(len(taken)) if depth(False, True) else (0, len(taken) // 2)
    for at in everywhere:
        with loader(pipe, 3) as dl:
            dl.load_state_dict(taken[at])
            assert out[:at] + [repr(sample) for sample in dl] == out, f"resumed after {at} samples, with workers"


def test_the_epoch_after_a_resumed_one_is_the_one_that_would_have_come() -> None:
    pipe = graph(3)
    first, second = read(pipe, 0)
    with loader(pipe, 2) as dl:
        samples = iter(dl)
        next(samples)
        state = dl.state_dict()
    with loader(pipe, 0) as dl:
        dl.load_state_dict(state)
        assert [repr(s) for s in dl] == first[1:]
        assert [repr(s) for s in dl] == second
