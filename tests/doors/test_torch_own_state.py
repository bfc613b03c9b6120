"""Datasets that have a state of their own: a loader's state holds it, wherever the loader stands."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from headrace.doors.torch.install import StatefulDataLoader
from headrace.doors.torch.loader import DataLoader
from headrace.errors import SnapshotRefused, warn_once

pytestmark = pytest.mark.filterwarnings("ignore:the 2 workers all read the same samples")


class Counted(Dataset[Any]):
    """Says how often this copy was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[int, int]:
        self.asked += 1
        return index, self.asked

    def state_dict(self) -> dict[str, int]:
        return {"asked": self.asked}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.asked = state["asked"]


class Passes(IterableDataset[Any]):
    """Counts its epochs; the generator is not a state, the dataset is."""

    def __init__(self) -> None:
        self.at, self.epoch, self.resumed = 0, 0, 0

    def __iter__(self) -> Iterator[tuple[int, int]]:
        self.at, self.resumed = self.resumed, 0
        while self.at < 6:
            self.at += 1
            yield self.at, self.epoch
        self.at, self.epoch = 0, self.epoch + 1

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at, "epoch": self.epoch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.resumed, self.epoch = state["at"], state["epoch"]


class Late(Passes):
    """Begins anew at the start of an epoch, not at the end of the one before."""

    def __iter__(self) -> Iterator[tuple[int, int]]:
        self.at, self.resumed = self.resumed, 0
        while self.at < 6:
            self.at += 1
            yield self.at, self.epoch


class Early(Late):
    """The same, by an `__iter__` that runs at once."""

    def __iter__(self) -> Iterator[tuple[int, int]]:
        self.at, self.resumed = self.resumed, 0

        def samples() -> Iterator[tuple[int, int]]:
            while self.at < 6:
                self.at += 1
                yield self.at, self.epoch

        return samples()


class Itself(IterableDataset[Any]):
    """Is its own iterator, and goes on where it was left."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> "Itself":
        return self

    def __next__(self) -> int:
        if self.at == 6:
            raise StopIteration
        self.at += 1
        return self.at

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def same(batch: Any) -> Any:
    return batch


def loader(dataset: Any, workers: int = 0, persistent: bool = False, kind: Any = DataLoader) -> Any:
    return kind(dataset, 1, num_workers=workers, collate_fn=same, persistent_workers=persistent)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_map_style_dataset_goes_on_with_its_state(workers: int) -> None:
    first = loader(Counted(), workers)
    it = iter(first)
    next(it), next(it), next(it)
    state = json.loads(json.dumps(first.state_dict()))
    rest = list(it)
    again = loader(Counted(), workers)
    again.load_state_dict(state)
    assert list(again) == rest
    assert rest[-1] == ([(7, 8)] if workers == 0 else [(7, 4)])


@pytest.mark.parametrize("taken", [0, 1, 2])
def test_workers_that_stay_bring_their_states_into_the_next_epoch(taken: int) -> None:
    """Also those that have not delivered anything of that epoch yet."""
    first = loader(Counted(), 2, persistent=True)
    list(first)
    it = iter(first)
    for _ in range(taken):
        next(it)
    state = json.loads(json.dumps(first.state_dict()))
    rest = list(it)
    again = loader(Counted(), 2, persistent=True)
    again.load_state_dict(state)
    assert list(again) == rest
    assert rest[-1] == [(7, 8)]


def test_states_of_several_workers_are_not_given_to_another_number_of_them() -> None:
    first = loader(Counted(), 2)
    it = iter(first)
    next(it)
    other = loader(Counted(), 0)
    other.load_state_dict(first.state_dict())
    with pytest.raises(SnapshotRefused, match="that many workers"):
        iter(other)
    del it


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, True)])
@pytest.mark.parametrize("make", [Passes, Counted])
def test_the_state_at_the_end_of_an_epoch_holds_what_datasets_keep(make: Any, workers: int, persistent: bool) -> None:
    first = loader(make(), workers, persistent)
    list(first)
    state = first.state_dict()
    second, third = list(first), list(first)
    again = loader(make(), workers, persistent)
    next(iter(again))
    again.load_state_dict(state)
    assert list(again) == second
    assert list(again) == third


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, True)])
def test_the_state_of_the_epoch_before_is_not_taken_for_that_of_this_one(workers: int, persistent: bool) -> None:
    """A generator function runs when its first sample is asked for: until then the dataset stands at its old end."""
    first = loader(Late(), workers, persistent)
    list(first)
    it = iter(first)
    for _ in range(max(1, workers)):
        next(it)
    state = first.state_dict()
    rest = list(it)
    again = loader(Late(), workers, persistent)
    again.load_state_dict(state)
    assert list(again) == rest
    assert len(rest) == 5 * max(1, workers)


@pytest.mark.parametrize("make", [Passes, Late, Early])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_that_stands_at_its_old_end_begins_the_next_epoch(make: Any, workers: int) -> None:
    """Whether it goes back to its start at the end of an epoch or at the beginning of the next."""
    first = loader(make(), workers, persistent=workers > 0)
    list(first)
    states = [first.state_dict()]
    it = iter(first)
    states.append(first.state_dict())
    second = []
    for batch in it:
        second.append(batch)
        states.append(first.state_dict())
    third = list(first)
    assert len(second) == len(third) == 6 * max(1, workers)
    for seen, state in enumerate(states, start=-1):
        again = loader(make(), workers, persistent=workers > 0)
        again.load_state_dict(json.loads(json.dumps(state)))
        assert list(again) == second[max(0, seen) :], f"after {seen}"
        assert list(again) == third, f"after {seen}"


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("seen", [0, 1, 5])
def test_a_dataset_that_is_its_own_iterator_goes_back_to_the_state(workers: int, seen: int) -> None:
    dataset = Itself()
    first = loader(dataset, workers)
    it = iter(first)
    for _ in range(seen):
        next(it)
    state = first.state_dict()
    rest = list(it)
    again = loader(dataset, workers)
    again.load_state_dict(state)
    assert list(again) == rest
    assert len(rest) == 6 * max(1, workers) - seen


def test_without_workers_an_iterable_is_opened_by_iter_as_in_torch() -> None:
    class Broken(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            raise KeyError("no file")

    for kind in (torch.utils.data.DataLoader, DataLoader):
        with pytest.raises(KeyError, match="no file"):
            iter(kind(Broken()))


def test_a_stateful_data_loader_takes_states_when_it_is_told() -> None:
    assert StatefulDataLoader[int] is not None
    states = []
    for _ in range(2):
        it = iter(source := StatefulDataLoader(Passes(), 1, collate_fn=same, snapshot_every_n_steps=4))
        for _ in range(3):
            next(it)
        states.append(source.state_dict())
    assert states[0]["at"] == states[1]["at"]
    again = StatefulDataLoader(Passes(), 1, collate_fn=same)
    again.load_state_dict(states[0])
    assert list(again) == list(it)


class Keeps(IterableDataset[int]):
    """Goes on changing what it was given as its state."""

    def __init__(self) -> None:
        self.state = {"seen": 0}

    def __iter__(self) -> Any:
        while self.state["seen"] < 20:
            self.state["seen"] += 1
            yield self.state["seen"]

    def state_dict(self) -> Any:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        self.state = state


@pytest.mark.parametrize("workers", [0, 1])
def test_a_dataset_may_change_what_it_was_given_as_its_state(workers: int) -> None:
    def resumed(state: Any) -> Any:
        loader: Any = StatefulDataLoader(Keeps(), None, num_workers=workers, snapshot_every_n_steps=100)
        loader.load_state_dict(state)
        return loader

    loader: Any = StatefulDataLoader(Keeps(), None, num_workers=workers, snapshot_every_n_steps=100)
    it = iter(loader)
    next(it), next(it)
    again = resumed(loader.state_dict())
    it = iter(again)
    assert next(it) == 3
    assert list(resumed(again.state_dict())) == list(range(4, 21))


class Fails:
    def __call__(self, worker: int) -> None:
        raise ValueError(f"no worker {worker}")


def test_what_worker_init_fn_raises_comes_where_it_comes_in_the_original() -> None:
    it = iter(DataLoader(range(4), num_workers=2, worker_init_fn=Fails()))
    with pytest.raises(ValueError, match=r"no worker \d"):
        next(it)  # torch's
    with pytest.raises(ValueError, match=r"no worker \d"):
        iter(StatefulDataLoader(range(4), num_workers=2, worker_init_fn=Fails()))


@pytest.mark.parametrize("persistent", [False, True])
def test_a_stateful_data_loader_knows_the_order_of_the_next_epoch(persistent: bool) -> None:
    def make() -> Any:
        return StatefulDataLoader(range(30), 4, shuffle=True, num_workers=2, persistent_workers=persistent)

    loader = make()
    for _ in range(2):
        state, follows = loader.state_dict(), [[b.tolist() for b in loader] for _ in range(2)]
        again = make()
        again.load_state_dict(state)
        it = iter(again)
        got = [next(it).tolist(), next(it).tolist()]
        inside = again.state_dict()
        assert got + [b.tolist() for b in it] == follows[0]
        assert [b.tolist() for b in again] == follows[1], "and that of the epoch after it"
        last = make()
        last.load_state_dict(inside)
        assert [b.tolist() for b in last] == follows[0][2:]


class Drawn(Dataset[Any]):
    """Samples with a random value."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[int, float]:
        return index, random.random()


class DrawnStream(IterableDataset[Any]):
    """The same, one after the other, without a state."""

    def __iter__(self) -> Iterator[tuple[int, float]]:
        for index in range(8):
            yield index, random.random()


class DrawnPasses(Passes):
    """The same with a state."""

    def __iter__(self) -> Iterator[Any]:
        for index, _ in super().__iter__():
            yield index, random.random()


@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize("dataset", [Drawn, DrawnStream, DrawnPasses])
def test_where_random_values_of_workers_differ_after_a_resume_it_is_said_once(
    dataset: Any, reproducible: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def loader() -> DataLoader[Any]:
        return DataLoader(dataset(), 2, num_workers=2, reproducible=reproducible)

    for passed in (0, 1, 3):
        began = loader()
        batches = iter(began)
        for _ in range(passed):
            next(batches)
        state = began.state_dict()
        rest = [batch[1].tolist() for batch in batches]
        caplog.clear()
        warn_once.cache_clear()
        for _ in range(2):
            resumed = loader()
            resumed.load_state_dict(state)
        differ = [batch[1].tolist() for batch in resumed] != rest
        said = [text for text in caplog.messages if "random values drawn in workers are not part" in text]
        assert len(said) == differ, (passed, said)
        assert not any("\n" in text for text in said)
