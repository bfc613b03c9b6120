"""The iterator that a user holds: who may read it, and what it says when it is closed."""

import threading
from typing import Any

import pytest

from headrace import Loader, Pipe
from headrace.errors import Closed
from tests.laws.pipes import KINDS, Numbers, odd, stream


@pytest.mark.parametrize("kind", ["inline", "thread1", "fork1"])
def test_after_close_an_iterator_is_closed_and_not_at_its_end(kind: str) -> None:
    loader = Loader(Pipe.of(Numbers(400)).batch(2), **KINDS[kind])
    samples = iter(loader)
    next(samples)
    loader.close()
    for _ in range(2):
        with pytest.raises(Closed):
            next(samples)


def test_an_iterator_that_came_to_its_end_stays_there_when_the_loader_is_closed() -> None:
    loader = Loader(Pipe.of(Numbers(4)))
    samples = iter(loader)
    list(samples)
    loader.close()
    assert list(samples) == []


def test_one_iterator_in_two_threads_is_an_error_for_the_second_and_not_a_hang() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slow(x: int) -> int:
        inside.set()
        go_on.wait()
        return x

    with Loader(Pipe.of(Numbers(8)).map(slow).batch(4)) as loader:
        samples, got = iter(loader), []
        reader = threading.Thread(target=lambda: got.append(next(samples)))
        reader.start()
        inside.wait()
        with pytest.raises(RuntimeError, match="read by another thread"):
            next(samples)
        go_on.set()
        reader.join()
        assert got == [[0, 1, 2, 3]]
        assert next(samples) == [4, 5, 6, 7], "the first reader, and whoever comes after it, go on"


@pytest.mark.parametrize("pipe", [Pipe.of(Numbers(9)).filter(odd), Pipe.of(stream(3)), Pipe.of([])])
def test_a_loader_is_true_whatever_its_length(pipe: Pipe[Any]) -> None:
    assert Loader(pipe)


def test_an_iterator_that_was_replaced_does_not_say_where_the_loader_stands() -> None:
    with Loader(Pipe.of(Numbers(12)).batch(4), seed=3) as loader:
        samples = iter(loader)
        next(samples)
        samples = iter(loader)
        list(samples)
        assert loader.state_dict()["epoch"] == 2
