"""Pipes that users write: found by their attributes, copied into workers, never touched."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace import Loader, Pipe
from headrace.datapipes import IterDataPipe, MapDataPipe, SequenceWrapper, functional_datapipe
from headrace.datapipes.iter import IterableWrapper, Mapper
from headrace.doors.dataloader2.loader import DataLoader2
from headrace.doors.dataloader2.services import MultiProcessingReadingService


@functional_datapipe("test_plus")
class Plus(IterDataPipe[int]):
    """Adds a number."""

    def __init__(self, datapipe: Any, number: int = 1) -> None:
        super().__init__()
        self.datapipe = datapipe
        self.number = number
        self.length = 5
        self.op = "a name that pipes use"

    def __iter__(self) -> Iterator[int]:
        for x in self.datapipe:
            yield x + self.number

    def __len__(self) -> int:
        return len(self.datapipe)


class Lines(IterDataPipe[str]):
    """Holds a file that is open while it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file: Any = None

    def __iter__(self) -> Iterator[str]:
        with open(self.path) as self.file:
            yield from self.file

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "file": None}


class Nested(IterDataPipe[Any]):
    """Its pipes are in containers."""

    def __init__(self, pipes: list[Any], table: MapDataPipe[Any]) -> None:
        self.pipes = {"all": tuple(pipes)}
        self.table = table

    def __iter__(self) -> Iterator[Any]:
        for values in zip(*self.pipes["all"], strict=False):
            yield (*values, self.table[values[0] % len(self.table)])


class OwnIterator(IterDataPipe[int]):
    """Returns itself from __iter__, and starts again at reset()."""

    def __init__(self, top: int) -> None:
        self.top = top
        self.now = 0

    def reset(self) -> None:
        self.now = 0

    def __iter__(self) -> "OwnIterator":
        return self

    def __next__(self) -> int:
        if self.now == self.top:
            raise StopIteration
        self.now += 1
        return self.now


class Twice(IterDataPipe[Any]):
    """Reads its source once for a sum, then again."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def __iter__(self) -> Iterator[Any]:
        total = sum(self.source)
        for x in self.source:
            yield (x, total)


class Squares(MapDataPipe[int]):
    def __init__(self, size: int) -> None:
        self.size = size

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self.size:
            raise IndexError(index)
        return index * index

    def __len__(self) -> int:
        return self.size


class Drawn(IterDataPipe[Any]):
    """Draws with the generator of headrace, and takes a seed."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.told = 0

    def set_seed(self, seed: int) -> "Drawn":
        self.told = seed
        return self

    def __iter__(self) -> Iterator[Any]:
        for x in self.source:
            yield (x, self.told, float(headrace.rng().random()))


def by_workers(pipe: Any, workers: int, epochs: int = 2) -> list[list[Any]]:
    with DataLoader2(pipe, reading_service=MultiProcessingReadingService(workers, "fork")) as dl:
        dl.seed(0)
        return [list(dl) for _ in range(epochs)]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Plus(IterableWrapper(range(10)), 3).sharding_filter(),
        lambda: IterableWrapper(range(10)).test_plus(2).shuffle().sharding_filter().map(str),
        lambda: Nested([IterableWrapper(range(9)).shuffle(), IterableWrapper("abcdef")], Squares(4)).sharding_filter(),
        lambda: OwnIterator(7).sharding_filter(),
        lambda: Twice(IterableWrapper(range(6)).shuffle()).sharding_filter(),
        lambda: Drawn(IterableWrapper(range(6)).shuffle()).sharding_filter(),
        lambda: Squares(9).shuffle().sharding_filter(),
        lambda: IterableWrapper(range(20)).sharding_filter().batch(3).map(sum).test_plus(1),
    ],
)
def test_a_pipe_of_the_users_delivers_the_same_with_and_without_workers(make: Any) -> None:
    pipe = make()
    with DataLoader2(pipe) as dl:
        dl.seed(0)
        expected = [list(dl) for _ in range(2)]
    assert expected[0]
    for workers in (1, 2):
        assert by_workers(pipe, workers) == expected


def test_direct_iteration_needs_no_loader_and_may_be_nested() -> None:
    pipe = Plus(IterableWrapper(range(4)), 10)
    assert list(pipe) == [10, 11, 12, 13]
    assert [(a, b) for a in pipe.map(str) for b in pipe] == [(str(a), b) for a in range(10, 14) for b in range(10, 14)]
    first, second = iter(pipe.map(str)), iter(pipe.map(str))
    assert [next(first), next(second), next(first)] == ["10", "10", "11"]


class Unpacked(IterDataPipe[Any]):
    """Its length depends on how its source was made."""

    def __init__(self, batches: Any) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        for batch in self.batches:
            yield from batch

    def __len__(self) -> int:
        return len(self.batches) * int(self.batches.batch_size)


def test_a_length_that_depends_on_more_than_the_lengths_of_its_sources_gets_in_no_ones_way() -> None:
    pipe = Unpacked(IterableWrapper(range(4)).batch(2))
    assert len(pipe) == 4
    assert list(pipe.map(str)) == list(DataLoader2(pipe.map(str))) == ["0", "1", "2", "3"]


class Pairs(IterDataPipe[Any]):
    """Has a list that an iteration left in the middle does not empty; that is what reset() does."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.kept: list[Any] = []
        self.resets = 0

    def reset(self) -> None:
        self.kept = []
        self.resets += 1

    def __iter__(self) -> Iterator[Any]:
        for x in self.source:
            self.kept.append(x)
            if len(self.kept) == 2:
                yield tuple(self.kept)
                self.kept.clear()


def test_reset_is_called_when_an_iteration_begins() -> None:
    pairs = Pairs(IterableWrapper(range(5)))
    begun = iter(pairs)
    assert pairs.resets == 0
    assert next(begun) == (0, 1)
    assert pairs.resets == 1
    assert list(pairs) == list(pairs) == [(0, 1), (2, 3)]
    assert pairs.resets == 3
    assert list(pairs.map(str)) == ["(0, 1)", "(2, 3)"]
    upwards = OwnIterator(3)
    assert list(upwards) == list(upwards) == [1, 2, 3]


def test_each_direct_iteration_has_a_new_order() -> None:
    pipe = IterableWrapper(range(50)).shuffle()
    first, second = list(pipe), list(pipe)
    assert first != second
    assert sorted(first) == sorted(second) == list(range(50))


def test_the_users_object_is_never_touched() -> None:
    source = IterableWrapper(range(5))
    pipe = Plus(source)
    before = dict(pipe.__dict__)
    with DataLoader2(pipe.map(str)) as dl:
        list(dl)
    assert pipe.__dict__ == before
    assert pipe.datapipe is source


def test_an_open_file_lives_as_long_as_the_iteration(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("a\nb\nc\n")
    pipe = Lines(path).map(str.strip)
    assert list(pipe) == ["a", "b", "c"]
    assert by_workers(pipe.sharding_filter(), 2) == [["a", "b", "c"]] * 2


def test_a_generator_function_is_called_again_for_every_epoch() -> None:
    pipe = IterableWrapper(lambda: (i * i for i in range(4))).sharding_filter()
    assert list(pipe) == [0, 1, 4, 9]
    assert by_workers(pipe, 2) == [[0, 1, 4, 9]] * 2


def test_an_iterator_is_read_once_and_says_so() -> None:
    pipe = IterableWrapper(iter(range(3)))
    assert list(pipe) == [0, 1, 2]
    with pytest.raises(ValueError, match="has been read already"):
        list(pipe)


def test_changing_samples_in_place_changes_nothing_for_the_next_epoch() -> None:
    def spoil(sample: list[int]) -> list[int]:
        sample.append(9)
        return sample

    data = [[1], [2]]
    pipe = IterableWrapper(data).map(spoil)
    assert list(pipe) == list(pipe) == [[1, 9], [2, 9]]
    assert data == [[1], [2]]


def test_what_cannot_be_copied_is_given_out_with_a_warning() -> None:
    with open(__file__) as file, pytest.warns(UserWarning, match="can not be deepcopied"):
        assert list(IterableWrapper([file])) == [file]


def test_a_table_answers_by_key_and_as_a_stream() -> None:
    table = SequenceWrapper({"a": 1, "b": 2}).map(lambda x: x * 10)
    assert (table["a"], table["b"], len(table)) == (10, 20, 2)
    assert list(table.to_iter_datapipe(["b", "a"])) == [20, 10]
    squares = Squares(6)
    assert list(squares.batch(4).to_iter_datapipe()) == [[0, 1, 4, 9], [16, 25]]
    assert squares.zip(squares.map(str))[2] == (4, "4")
    assert list(squares.concat(Squares(2))) == [0, 1, 4, 9, 16, 25, 0, 1]
    assert sorted(squares.shuffle()) == sorted(squares)
    left, right = squares.map(lambda x: (x, -x)).unzip(2)
    assert (left[3], right[3]) == (9, -9)
    cached = squares.in_memory_cache()
    assert (cached[2], cached[2], len(cached)) == (4, 4, 6)


class Doubled(MapDataPipe[Any]):
    """Answers to any key, so that it has no length."""

    def __getitem__(self, key: Any) -> Any:
        return key * 2


def test_a_table_without_a_length_is_asked_by_key_only() -> None:
    assert list(IterableWrapper("ab").zip_with_map(Doubled(), key_fn=str)) == [("a", "aa"), ("b", "bb")]
    for ask in (len, list, Doubled.to_iter_datapipe, DataLoader2):
        with pytest.raises(TypeError, match=r"object of type 'Doubled' has no len\(\)"):
            list(ask(Doubled()))


def test_a_position_outside_a_table_is_an_error() -> None:
    squares = Squares(6)
    with pytest.raises(IndexError, match="Index 9 is out of bound"):
        squares.batch(4)[9]
    with pytest.raises(IndexError, match="Index 9 is out of range"):
        squares.concat(Squares(3))[9]
    with pytest.raises(IndexError, match="out of range for one of the input MapDataPipes"):
        squares.zip(Squares(2))[4]
    with pytest.raises(IndexError, match="out of bound"):
        squares.batch(4).map(len)[7]
    with pytest.raises(TypeError, match="`MapDataPipe`"):
        squares.zip([1, 2])


def test_a_stream_becomes_a_table_that_workers_can_ask() -> None:
    names = IterableWrapper([(i, f"n{i}") for i in range(5)]).to_map_datapipe()
    assert (names[3], len(names)) == ("n3", 5)
    pipe = IterableWrapper([4, 0, 2]).sharding_filter().zip_with_map(names, key_fn=lambda x: x)
    assert by_workers(pipe, 2) == [[(4, "n4"), (0, "n0"), (2, "n2")]] * 2


def test_pipes_travel_with_what_they_hold() -> None:
    pipe = Plus(IterableWrapper(range(5)), 2).batch(batch_size=2)
    again = pickle.loads(pickle.dumps(pipe))
    assert list(again) == list(pipe) == [[2, 3], [4, 5], [6]]
    assert again.batch_size == 2


def test_a_taken_name_is_refused_and_the_same_class_may_come_again() -> None:
    with pytest.raises(Exception, match="Unable to add DataPipe function name map as it is already taken"):

        @functional_datapipe("map")
        class Other(IterDataPipe[Any]):
            pass

    again = functional_datapipe("test_plus")(Plus)
    assert again is Plus
    assert not hasattr(Pipe, "test_plus")  # a verb of the user's belongs to DataPipes


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'Mapper' object has no attribute 'nothing'"):
        _ = Mapper(IterableWrapper([1]), str).nothing


def test_a_built_class_cannot_be_subclassed() -> None:
    with pytest.raises(TypeError, match="subclass IterDataPipe"):
        type("Mine", (Mapper,), {})


def test_pipes_that_do_not_replicate_stay_in_the_training_process() -> None:
    import os

    class Here(IterDataPipe[Any]):
        def __init__(self, source: Any) -> None:
            self.source = source

        def is_replicable(self) -> bool:
            return False

        def __iter__(self) -> Iterator[Any]:
            for x in self.source:
                yield (x, os.getpid())

    pipe = Here(IterableWrapper(range(6)).sharding_filter().map(lambda x: os.getpid()))
    (epoch,) = by_workers(pipe, 2, epochs=1)
    assert all(worker != os.getpid() and main == os.getpid() for worker, main in epoch)


def test_a_users_pipe_can_be_given_to_a_plain_loader() -> None:
    class Plain(IterDataPipe[int]):
        def __init__(self, source: Any) -> None:
            self.source = source

        def __iter__(self) -> Iterator[int]:
            yield from self.source

    with Loader(Plain(IterableWrapper(range(5)).in_memory_cache()).map(str)) as loader:
        assert list(loader) == list("01234")


def test_names_that_pipes_use_do_not_get_in_the_way() -> None:
    pipe = Plus(IterableWrapper(range(5)))
    assert (pipe.length, pipe.op) == (5, "a name that pipes use")
    assert list(pipe.batch(2).in_memory_cache().threadpool_map(len)) == [2, 2, 1]
    assert list(pipe.threadpool_map(str).zip(pipe)) == [("1", 1), ("2", 2), ("3", 3), ("4", 4), ("5", 5)]
    assert list(pipe.in_memory_cache()) == [1, 2, 3, 4, 5]
    assert sorted(x for part in pipe.random_split({"a": 2, "b": 3}, seed=0) for x in part) == [1, 2, 3, 4, 5]


def test_torchs_own_pipes_and_datasets_are_accepted() -> None:
    torch_data = pytest.importorskip("torch.utils.data")

    class Stream(torch_data.IterableDataset):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Iterator[int]:
            return iter(range(4))

    from torch.utils.data.datapipes.iter import IterableWrapper as TorchWrapper
    from torch.utils.data.datapipes.map import SequenceWrapper as TorchTable

    assert list(IterableWrapper(Stream()).map(str)) == list("0123")
    assert list(Mapper(TorchWrapper([1, 2]).map(str), int)) == [1, 2]
    for given in (TorchWrapper(range(4)), TorchTable(range(4)), Stream(), [0, 1, 2, 3]):
        with DataLoader2(given) as dl:
            assert list(dl) == [0, 1, 2, 3]
