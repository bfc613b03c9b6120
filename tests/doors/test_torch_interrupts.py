"""The state after an exception at any moment inside `next()`: after the last batch that the caller received."""

import gc
import json
import random
import weakref
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset

from headrace.doors.torch.loader import DataLoader
from headrace.engine import run
from tests.depth import depth
from tests.doors.torch_corpus import seeded
from tests.laws.moments import Interrupt, Moment


class Stream(IterableDataset[int]):
    """Each worker has half of the numbers, and knows where it stands, if it is asked to."""

    def __iter__(self) -> Any:
        info = torch.utils.data.get_worker_info()
        return iter(range(40) if info is None else range(info.id, 40, info.num_workers))


class Counted(Stream):
    """Goes on by a state of its own."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Any:
        for number in list(super().__iter__())[self.at :]:
            self.at += 1
            yield number
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


MAKE: dict[str, Any] = {
    "map": lambda w: DataLoader(range(40), 3, shuffle=True, generator=seeded(), num_workers=w),
    "map, any order": lambda w: DataLoader(range(40), 3, in_order=False, num_workers=w),
    "iterable": lambda w: DataLoader(Stream(), 3, num_workers=w),
    "iterable with a state": lambda w: DataLoader(Counted(), 3, num_workers=w),
    "divided": lambda w: DataLoader(Stream(), 3, num_workers=w, shard="auto"),
}


def read(moment: Moment, samples: Any, got: list[list[int]]) -> None:
    while True:
        try:
            batch = moment.of(lambda: next(samples))
        except StopIteration:
            return
        got.append(batch.tolist())


# (An exception that comes inside a finalizer goes nowhere, whoever raises it.)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.timeout(depth(120, 1800))
@pytest.mark.parametrize("workers", depth([0], [0, 2]))
@pytest.mark.parametrize("name", list(MAKE))
def test_an_interrupt_at_any_moment_loses_and_repeats_nothing(name: str, workers: int) -> None:
    chance = random.Random(f"{name} {workers}")
    counter, whole = Moment(float("inf"), Interrupt()), []
    read(counter, iter(MAKE[name](workers)), whole)
    for _ in range(depth(12 if workers == 0 else 3, 100)):
        error = chance.choice([KeyboardInterrupt(), Interrupt()])
        moment, got, loader = Moment(chance.randrange(counter.seen), error), [], MAKE[name](workers)
        it = iter(loader)
        try:
            read(moment, it, got)
        except (KeyboardInterrupt, Interrupt):
            pass
        state = json.loads(json.dumps(loader.state_dict()))
        del it
        if state["at"] == "null":
            assert sorted(got) == sorted(whole)
            continue
        again = MAKE[name](workers)
        again.load_state_dict(state)
        rest = [batch.tolist() for batch in again]
        if "any order" in name:
            assert sorted(got + rest) == sorted(whole), (error, moment.seen)
        else:
            assert got + rest == whole, (error, moment.seen)


def test_an_exception_in_place_of_the_first_batch_leaves_the_state_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the state is that of the moment at which the datasets were opened."""
    loader, opened = MAKE["iterable with a state"](2), run.open_many

    def interrupted(*args: Any) -> Any:
        monkeypatch.setattr(run, "open_many", opened)
        raise Interrupt

    it = iter(loader)
    monkeypatch.setattr(run, "open_many", interrupted)
    with pytest.raises(Interrupt):
        next(it)
    again = MAKE["iterable with a state"](2)
    again.load_state_dict(loader.state_dict())
    whole = [batch.tolist() for batch in MAKE["iterable with a state"](2)]
    assert [batch.tolist() for batch in again] == whole


class FailingSampler:
    def __iter__(self) -> Any:
        yield from range(8)
        raise ValueError("no more")

    def __len__(self) -> int:
        return 16


def test_workers_end_with_an_iterator_whose_sampler_has_failed() -> None:
    """The frames of an error hold the iterator: nobody may hold the error once it has been raised."""
    loader: Any = DataLoader(range(16), 4, sampler=FailingSampler(), num_workers=1)
    it = iter(loader)
    with pytest.raises(ValueError, match="no more"):
        list(it)
    gone = weakref.ref(it)
    del it, loader
    gc.collect()
    assert gone() is None


class Broken(Stream):
    def __iter__(self) -> Any:
        return Failing()


class Failing:
    """Fails at 4, and goes on behind it."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> "Failing":
        return self

    def __next__(self) -> int:
        self.at += 1
        if self.at == 5:
            raise ValueError("4")
        if self.at > 12:
            raise StopIteration
        return self.at - 1


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_goes_on_behind_an_error_and_its_state_is_before_it_until_then(workers: int) -> None:
    loader = DataLoader(Broken(), 2, num_workers=workers)
    it = iter(loader)
    got = [next(it).tolist(), next(it).tolist()]
    before = loader.state_dict()
    with pytest.raises(ValueError, match="4"):
        next(it)
    assert loader.state_dict() == before, "nothing was received"
    got.append(next(it).tolist())
    assert got == [[0, 1], [2, 3], [5, 6]]
    again = DataLoader(Broken(), 2, num_workers=workers)
    again.load_state_dict(loader.state_dict())
    assert [b.tolist() for b in again] == [b.tolist() for b in it]


class Sometimes:
    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> int:
        if i == 1:  # in the first batch, so that others come after it
            raise ValueError("1")
        return i


@pytest.mark.parametrize("workers", [0, 2])
def test_of_batches_in_any_order_the_one_that_failed_is_passed_by_the_next_that_is_received(workers: int) -> None:
    loader: Any = DataLoader(Sometimes(), 2, num_workers=workers, in_order=False)
    it, got = iter(loader), []
    while True:
        try:
            got.append(next(it).tolist())
        except StopIteration:
            break
        except ValueError:
            state = loader.state_dict()
            got.append(next(it).tolist())
            after = loader.state_dict()
    assert sorted(got) == [[2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]
    again: Any = DataLoader(Sometimes(), 2, num_workers=workers, in_order=False)
    again.load_state_dict(state)
    with pytest.raises(ValueError, match="1"):
        list(again)
    again.load_state_dict(after)
    assert [0, 1] not in [b.tolist() for b in again]
