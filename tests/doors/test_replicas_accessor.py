"""PT-24 to PT-29 for the accessor: any iterable, loaded ahead, over the end of an epoch, without aliasing."""

import os
import select
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from headrace.errors import BadOption, Closed, NoLength
from headrace.replicas import AsynchronousDataAccessor, DataLoader, Options, SharingStrategy
from tests.doors.replicas_datasets import Endless, Failing, Numbers, Rows, Stream, Telling, Uneven


class Heard:
    """The reading end of a named pipe."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)  # never at its end, since it is its own writer

    def wait_for(self, count: int) -> None:
        while count > 0:
            ready, _, _ = select.select([self.fd], [], [], 30)
            assert ready, "nothing was loaded within 30 s"
            count -= len(os.read(self.fd, count))

    def rest(self) -> int:
        try:
            return len(os.read(self.fd, 1 << 16))
        except BlockingIOError:
            return 0


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[Heard]:
    listening = Heard(tmp_path / "loaded")
    yield listening
    os.close(listening.fd)


def test_an_early_preload_fills_the_buffer_before_anybody_iterates(heard: Heard) -> None:
    accessor = AsynchronousDataAccessor(Telling(9, heard.path), buffer_size=3, early_preload=True)
    heard.wait_for(3)
    assert list(accessor) == list(range(9))
    accessor.terminate()


def test_a_buffer_holds_no_more_than_it_should(heard: Heard) -> None:
    accessor = AsynchronousDataAccessor(Telling(9, heard.path), buffer_size=3, early_preload=True)
    heard.wait_for(3)
    accessor.terminate()
    assert heard.rest() <= 1  # the batch that the constructor takes may make room for one more behind it


def test_the_next_epoch_begins_when_the_last_batch_is_handed_out(heard: Heard) -> None:
    loader = DataLoader(Options(), Telling(12, heard.path), 4, mode="Async")
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    heard.wait_for(12 + 4)  # nobody has asked for more than this epoch
    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    loader.terminate()


def test_an_epoch_that_shall_not_run_on_does_not(heard: Heard) -> None:
    loader = DataLoader(Options(), Telling(12, heard.path), 4, mode="Async", async_options={"load_indefinitely": False})
    assert len(list(loader)) == 3
    loader.terminate()
    assert heard.rest() == 12


def test_a_shuffle_goes_on_over_epochs_that_were_begun_early() -> None:
    ahead = DataLoader(
        Options().randomSeed(4), Numbers(40), 4, True, mode="Async", async_options={"early_preload": True}
    )
    plain = DataLoader(Options().randomSeed(4), Numbers(40), 4, True)
    for _ in range(3):
        assert [b.tolist() for b in ahead] == [b.tolist() for b in plain]
    ahead.terminate()


@pytest.mark.parametrize("strategy", list(SharingStrategy))
def test_items_of_changing_shape_and_type_arrive_as_they_are_and_stay(strategy: SharingStrategy) -> None:
    accessor = AsynchronousDataAccessor(Uneven(30), sharing_strategy=strategy)
    kept = list(accessor)
    accessor.terminate()
    assert len(kept) == 30
    for found, wanted in zip(kept, map(Uneven(30).__getitem__, range(30)), strict=True):
        assert found.dtype == wanted.dtype
        assert np.array_equal(found, wanted)


def test_any_iterable_is_read_and_its_length_told() -> None:
    accessor = AsynchronousDataAccessor(Stream(20))
    assert (list(accessor), list(accessor), len(accessor)) == (list(range(20)), list(range(20)), 20)
    accessor.terminate()
    endless = AsynchronousDataAccessor(Endless())
    with pytest.raises(NoLength):
        len(endless)
    assert [number for number, _ in zip(endless, range(3), strict=False)] == [0, 1, 2]
    endless.terminate()


def test_an_error_arrives_as_it_was_raised() -> None:
    accessor = AsynchronousDataAccessor(Failing(10, 5))
    with pytest.raises(LookupError, match="no sample 5"):
        list(accessor)
    accessor.terminate()


def test_a_data_set_that_is_broken_from_the_start_is_told_by_the_constructor() -> None:
    with pytest.raises(LookupError, match="no sample 0") as told:
        AsynchronousDataAccessor(Failing(10, 0))
    assert "the asynchronous loader could not start" in "".join(told.value.__notes__)
    with pytest.raises(BadOption, match="the data set is empty"):
        AsynchronousDataAccessor(Stream(0))


def test_the_batch_that_the_constructor_loads_is_the_first_of_the_first_epoch() -> None:
    loader = DataLoader(Options().randomSeed(3), Numbers(12), 4, True, mode="Async")
    plain = DataLoader(Options().randomSeed(3), Numbers(12), 4, True)
    start = loader.state_dict()
    assert start == plain.state_dict()
    first = iter(loader)
    assert loader.state_dict() == start
    assert next(first).tolist() == next(iter(plain)).tolist()
    assert loader.state_dict()["at"] == plain.state_dict()["at"]
    for one in (loader, plain):
        one.load_state_dict(start)
    assert [batch.tolist() for batch in loader] == [batch.tolist() for batch in plain]
    loader.terminate()


def test_batches_are_cut_and_joined_to_another_size() -> None:
    batches = [(torch.arange(i, i + 4), np.arange(i, i + 4)) for i in range(0, 12, 4)]
    accessor = AsynchronousDataAccessor(batches, rebatched_size=5)
    found = list(accessor)
    accessor.terminate()
    assert [left.tolist() for left, _ in found] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]]
    assert all(torch.equal(left, right) for left, right in found)


def test_a_loader_is_read_in_the_background_but_not_twice() -> None:
    loader = DataLoader(Options().randomSeed(2), Rows(12), 4, True)
    accessor = AsynchronousDataAccessor(loader)
    assert len(accessor) == 3
    for (found, _), (wanted, _) in zip(accessor, loader, strict=True):
        assert torch.equal(found, wanted)
    already = DataLoader(Options(), Rows(12), 4, mode="Async")
    for twice in (accessor, already):
        with pytest.raises(BadOption, match="already uses an AsynchronousDataAccessor internally"):
            AsynchronousDataAccessor(twice)
    with pytest.raises(BadOption, match="rebatched_size"):
        AsynchronousDataAccessor(loader, rebatched_size=3)
    accessor.terminate()


def test_a_terminated_accessor_says_so() -> None:
    accessor = AsynchronousDataAccessor(Numbers(4), early_preload=True)
    accessor.terminate()
    accessor.terminate()
    with pytest.raises(Closed, match="closed"):
        iter(accessor)
