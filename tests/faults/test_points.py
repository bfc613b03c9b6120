"""A kill before and after every message and every write into a slot: always the same stream."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe
from tests.depth import across, depth
from tests.faults.points import Points
from tests.laws.pipes import Numbers, drawn, odd, stream


def array(x: Any) -> Any:
    """Large enough for the slot, and different for every sample."""
    return np.full(3000, x if isinstance(x, int) else x[0], np.uint8)


def large(x: Any) -> Any:
    """Outgrows the slot that was lent."""
    return np.full(90_000, x, np.uint8)


PIPES = {
    "in the message": Pipe.of(Numbers(12)).shuffle().map(drawn).batch(3),
    "in the slot": Pipe.of(Numbers(12)).shuffle().map(drawn).map(array).batch(3),
    "made in the slot": Pipe.of(Numbers(12)).shuffle().map(array).batch(3).collate(),
    "larger than the slot": Pipe.of(Numbers(4)).map(large).batch(1),
    "two stages": Pipe.of(Numbers(12)).map(drawn).filter(lambda x: x[0] % 3).map(array).batch(4).collate(),
    "a stream": Pipe.of(stream(12)).shuffle(window=4).sharding_filter().map(drawn).map(array).batch(3),
    "a stream alone": Pipe.of(stream(9)).shuffle(buffer_size=3).map(drawn),
    "a stream, filtered": Pipe.of(stream(12)).sharding_filter().filter(odd).map(drawn).batch(2),
}


@pytest.fixture
def points() -> Iterator[Points]:
    with pytest.MonkeyPatch.context() as patch:
        yield Points(patch)


def read(pipe: Pipe[Any], **how: Any) -> list[str]:
    with Loader(pipe, seed=3, **how) as loader:
        return [repr(sample) for sample in loader]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("workers", depth([1], [1, 2, 3]))
@pytest.mark.parametrize("name", list(PIPES))
def test_a_kill_at_any_fault_point_does_not_change_the_stream(points: Points, name: str, workers: int) -> None:
    want = read(PIPES[name])
    assert read(PIPES[name], workers=workers, start_method="fork") == want
    moments = points.reached
    assert moments > 20
    # In the plain run every ninth one, from another start for each pipe; the deep run takes them all.
    step = depth(9, 1)
    for moment in range(1 + len(name) % step, moments + 1, step):
        points.arm(moment)
        assert read(PIPES[name], workers=workers, start_method="fork") == want, f"killed at moment {moment}"


@pytest.mark.parametrize(("name", "workers"), across(["in the slot", "two stages", "a stream"], [1, 2]))
def test_kills_at_every_seventh_fault_point_do_not_change_the_stream(points: Points, name: str, workers: int) -> None:
    want = read(PIPES[name])
    with Loader(PIPES[name], seed=3, workers=workers, start_method="fork") as loader:
        got = []
        points.arm(7)
        for batch in loader:
            got.append(repr(batch))
            points.arm(7)
        assert loader.stats().retries
    assert got == want
