"""Datasets that have a state of their own: a loader's state holds it, wherever the loader stands."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from headrace.doors.torch.install import StatefulDataLoader
from headrace.doors.torch.loader import DataLoader
from headrace.errors import SnapshotRefused

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
