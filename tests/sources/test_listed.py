"""Items that the training process lists itself."""

import os
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from headrace import Budget, Loader, Pipe, World
from headrace.errors import BadOption, BadPipe
from tests.laws.pipes import KINDS


def double(x: int) -> int:
    return 2 * x


class ByEpoch:
    """Another list each epoch."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def open(self, epoch: int, number: int) -> Iterator[int]:
        self.asked.append((epoch, number))
        return iter(range(10 * epoch + number, 10 * epoch + 6))


@pytest.mark.parametrize("kind", ["inline", "thread3", "fork1"])
def test_workers_get_what_the_consumer_lists_and_a_snapshot_says_how_many(kind: str) -> None:
    items = ByEpoch()
    pipe = Pipe.listed(items).map(double)
    with Loader(pipe, **KINDS[kind]) as loader:
        assert list(loader) == [0, 2, 4, 6, 8, 10]
        samples = iter(loader)
        got = [next(samples), next(samples)]
        state = loader.state_dict()
        assert "item 2 of the list" in str(at.describe() if (at := loader.place()[1]) else at)
    with Loader(pipe) as loader:
        loader.load_state_dict(state)
        assert got + list(loader) == [20, 22, 24, 26, 28, 30]
    assert items.asked[-1] == (1, 2), "of the same epoch, from there on"


@pytest.mark.parametrize("workers", [0, 2])
def test_items_that_come_before_their_turn_are_not_worked_on_again(workers: int) -> None:
    gate = threading.Event()

    def slow_first(number: int) -> int:
        if number == 0:
            gate.wait()
        return number

    pipe = Pipe.listed(range(12)).map(slow_first)
    with Loader(pipe, workers=2, kind="thread", ordered=False) as loader:
        samples = iter(loader)
        early = [next(samples)]
        gate.set()
        early += [next(samples), next(samples)]
        state = loader.state_dict()
    assert early[0] != 0
    with Loader(pipe, workers=workers, kind="thread" if workers else None, ordered=False) as loader:
        loader.load_state_dict(state)
        assert sorted([*early, *loader]) == list(range(12))


def test_batches_filters_and_shuffles_follow_a_list_as_any_source() -> None:
    with Loader(Pipe.listed(range(10)).map(double).batch(4)) as loader:
        assert list(loader) == [[0, 2, 4, 6], [8, 10, 12, 14], [16, 18]]
    with Loader(Pipe.listed(range(10)).shuffle(window=5), seed=3) as loader:
        assert sorted(loader) == list(range(10))
        assert len(loader) == 10
        assert "IN THE CONSUMER" in loader.explain()


def test_an_error_of_the_list_comes_in_its_place() -> None:
    def items() -> Iterator[int]:
        yield from range(3)
        raise ValueError("no more")

    class Items:
        def __iter__(self) -> Iterator[int]:
            return items()

    with Loader(Pipe.listed(Items()).map(double), workers=1, start_method="fork") as loader:
        samples = iter(loader)
        assert [next(samples) for _ in range(3)] == [0, 2, 4]
        with pytest.raises(ValueError, match="no more"):
            next(samples)
        assert list(samples) == []


@pytest.mark.parametrize("item", [("a", "b", "c"), (0, 5, ()), ([1], 2, 3)], ids=str)
def test_an_item_may_look_like_a_ticket_of_another_source(item: tuple[object, ...]) -> None:
    with Loader(Pipe.listed([item] * 200).map(second), on_error=Budget(fraction=0.0)) as loader:
        assert list(loader) == [item[1]] * 200


def second(item: tuple[object, ...]) -> object:
    return item[1]


def deadly(number: int) -> int:
    if number == 2:
        os._exit(3)
    return number


def test_an_item_that_ends_its_worker_twice_is_left_out_if_that_is_asked_for() -> None:
    with Loader(Pipe.listed(range(5)).map(deadly), workers=1, start_method="fork", on_poison="skip") as loader:
        assert list(loader) == [0, 1, 3, 4]
        assert loader.stats().retries == 2


JOINED = {
    "zip": lambda listed, other: other.zip(listed),
    "mix": lambda listed, other: listed.mix(other, weights=[1, 1]),
    "concat": lambda listed, other: listed.map(double).concat(other).map(double),
}


@pytest.mark.parametrize("join", JOINED)
@pytest.mark.parametrize("options", [{"start_method": "fork"}, {"start_method": "server"}, {"kind": "ray"}], ids=str)
def test_a_list_that_is_joined_with_other_sources_is_refused_when_the_loader_is_made(
    join: str, options: dict[str, Any]
) -> None:
    pipe = JOINED[join](Pipe.listed(range(6)), Pipe.of(range(6)))
    with pytest.raises(BadPipe, match=rf"{join}\(\) joins it .* one source of its pipe"):
        Loader(pipe, workers=1, **options)
    with Loader(pipe, workers=1, kind="thread") as loader:
        assert list(loader) == list(Loader(pipe))


def test_a_pipe_that_was_pickled_has_no_list_and_says_so() -> None:
    with pytest.raises(BadPipe, match="make the pipe in the one that reads it"):
        list(Loader(pickle.loads(pickle.dumps(Pipe.listed([1, 2])))))


def test_what_is_no_list_and_what_cannot_be_divided_is_refused() -> None:
    with pytest.raises(BadOption, match="not an iterator"):
        Pipe.listed(iter([1]))
    with pytest.raises(BadOption, match="not int"):
        Pipe.listed(3)  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="not divided among ranks"):
        Loader(Pipe.listed([1, 2]), world=World(rank=0, ranks=2))
