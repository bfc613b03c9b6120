"""Reading services: who works where, what users plug in, and in which order they are called."""

import json
import os
import random
import signal
import threading
import warnings
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from headrace.datapipes import SHARDING_PRIORITIES, IterDataPipe
from headrace.datapipes.graph import set_graph_random_seed
from headrace.datapipes.iter import IterableWrapper
from headrace.doors.dataloader2.build import build
from headrace.doors.dataloader2.loader import DataLoader2
from headrace.doors.dataloader2.seeds import SeedGenerator, epoch_number
from headrace.doors.dataloader2.services import (
    CheckpointableReadingServiceInterface,
    DistributedReadingService,
    InProcessReadingService,
    MultiProcessingReadingService,
    PrototypeMultiProcessingReadingService,
    ReadingServiceInterface,
    ReadSettings,
    SequentialReadingService,
)
from headrace.errors import NotPicklable
from headrace.plan.world import World


def workers(count: int, **options: Any) -> MultiProcessingReadingService:
    return MultiProcessingReadingService(count, "fork", **options)


def read(pipe: Any, service: Any, epochs: int = 1) -> list[list[Any]]:
    with DataLoader2(pipe, reading_service=service) as dl:
        dl.seed(0)
        return [list(dl) for _ in range(epochs)]


# --- exact and per worker ---------------------------------------------------------------------------------------------


def test_batches_do_not_depend_on_the_number_of_workers() -> None:
    pipe = IterableWrapper(range(15)).sharding_filter().batch(5)
    assert read(pipe, workers(2)) == [[[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12, 13, 14]]]


def test_a_copy_of_the_graph_per_worker_can_be_asked_for() -> None:
    pipe = IterableWrapper(range(15)).sharding_filter().batch(5)
    per_worker = workers(2, sharding="per-worker")
    assert read(pipe, per_worker) == [[[0, 2, 4, 6, 8], [1, 3, 5, 7, 9], [10, 12, 14], [11, 13]]]
    assert read(IterableWrapper(range(3)), per_worker) == [[0, 0, 1, 1, 2, 2]]


def test_per_worker_seeds_are_shared_before_the_shard_point_only() -> None:
    pipe = IterableWrapper(range(20)).shuffle().sharding_filter().shuffle()
    first, second = read(pipe, workers(2, sharding="per-worker"), epochs=2)
    assert sorted(first) == sorted(second) == list(range(20))
    assert first != second
    assert read(pipe, workers(2, sharding="per-worker"), epochs=2) == [first, second]


def test_a_copy_per_worker_resumes_in_mid_epoch() -> None:
    pipe = IterableWrapper(range(23)).shuffle().sharding_filter().map(str).batch(2)
    (expected,) = read(pipe, workers(2, sharding="per-worker"))
    with DataLoader2(pipe, reading_service=workers(2, sharding="per-worker")) as dl:
        dl.seed(0)
        samples = iter(dl)
        head = [next(samples) for _ in range(5)]
        state = dl.state_dict()
    with DataLoader2(pipe, reading_service=workers(2, sharding="per-worker")) as dl:
        dl.load_state_dict(state)
        assert head + list(dl) == expected


def test_a_graph_without_a_shard_point_delivers_each_sample_once_and_warns() -> None:
    with pytest.warns(UserWarning, match=r"no sharding_filter\(\).*sharding='per-worker'"):
        (seen,) = read(IterableWrapper(range(20)).shuffle().map(str), workers(2))
    assert sorted(seen, key=int) == [str(x) for x in range(20)]


def test_a_shuffle_behind_the_shard_point_is_warned_about() -> None:
    with pytest.warns(UserWarning, match=r"put .shuffle\(\) before .sharding_filter\(\)"):
        (seen,) = read(IterableWrapper(range(20)).sharding_filter().shuffle(), workers(2))
    assert sorted(seen) == list(range(20))


def test_what_stands_before_a_dispatch_runs_once() -> None:
    pipe = IterableWrapper(range(12)).map(lambda x: (x, os.getpid()))
    pipe = pipe.sharding_round_robin_dispatch(SHARDING_PRIORITIES.MULTIPROCESSING).batch(4)
    (seen,) = read(pipe, workers(2))
    assert [x for batch in seen for x, _ in batch] == list(range(12))
    with pytest.raises(NotImplementedError, match="MULTIPROCESSING"):
        pipe.sharding_round_robin_dispatch(SHARDING_PRIORITIES.DISTRIBUTED)


# --- functions of the user's in workers -------------------------------------------------------------------------------

_CALLS: list[Any] = []


def note_init(pipe: Any, info: Any) -> Any:
    _CALLS.append(("init", info.num_workers, info.worker_id))
    return pipe


def note_reset(pipe: Any, info: Any, seeds: Any) -> Any:
    _CALLS.append(("reset", info.num_workers, info.worker_id, seeds.generate_shared_seed()))
    return pipe


def calls(_: Any) -> Any:
    return list(_CALLS)


def test_worker_functions_run_in_each_worker_before_its_samples() -> None:
    pipe = IterableWrapper(range(64)).sharding_filter().map(calls).batch(1)
    service = workers(2, worker_init_fn=note_init, worker_reset_fn=note_reset)
    first, second = read(pipe, service, epochs=2)
    for (seen,) in first:
        kinds = [call[0] for call in seen]
        assert kinds == ["init", "reset"]
        assert seen[0][1] == 2
        assert seen[0][2] == seen[1][2]
    last = [seen for (seen,) in second]
    assert all([c[0] for c in seen] in (["init", "reset"], ["init", "reset", "reset"]) for seen in last)
    assert not _CALLS, "nothing of this ran here"


@pytest.mark.parametrize("count", [1, 2])
def test_a_worker_function_that_returns_another_graph_gives_each_worker_its_own(count: int) -> None:
    pipe = IterableWrapper(range(8)).sharding_filter().map(int)
    numbered = workers(count, worker_init_fn=lambda dp, info: dp.map(lambda x: (info.worker_id, x)))
    assert read(pipe, numbered, epochs=2) == [[(x % count, x) for x in range(8)]] * 2
    with DataLoader2(pipe, reading_service=numbered) as dl:
        samples = iter(dl)
        begun = [next(samples) for _ in range(3)]
        state = dl.state_dict()
    with DataLoader2(pipe, reading_service=numbered) as dl:
        dl.load_state_dict(state)
        assert begun + list(dl) == [(x % count, x) for x in range(8)]
    again = workers(count, worker_reset_fn=lambda dp, info, seeds: dp.map(lambda x: (info.worker_id, x)))
    assert read(pipe, again, epochs=2) == [[(x % count, x) for x in range(8)]] * 2


class Runs(IterDataPipe[Any]):
    """Makes three samples out of one, and says where."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def __iter__(self) -> Iterator[Any]:
        for x in self.source:
            yield from ((x, i, os.getpid()) for i in range(3))


@pytest.mark.parametrize("strands", [1, 3, 16])
def test_a_users_pipe_behind_a_shard_point_runs_in_workers_the_same_for_any_number(strands: int) -> None:
    pipe = Runs(IterableWrapper(range(20)).shuffle().sharding_filter().map(int)).filter(lambda x: x[1] != 1).batch(4)
    runs = []
    for count in (0, 1, 4):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            epochs = read(pipe, workers(count, strands=strands), epochs=2)
        places = {pid for epoch in epochs for batch in epoch for _, _, pid in batch}
        assert (os.getpid() in places) is (count == 0)
        assert count < 2 or strands == 1 or len(places) > 1
        runs.append([[[x[:2] for x in batch] for batch in epoch] for epoch in epochs])
    assert runs[0] == runs[1] == runs[2]
    assert sorted(x for batch in runs[0][0] for x in batch) == [(x, i) for x in range(20) for i in (0, 2)]
    assert [len(batch) for batch in runs[0][0]] == [4] * 10


class Numbered(IterDataPipe[Any]):
    """Each sample with its number here."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def __iter__(self) -> Iterator[Any]:
        return enumerate(self.source)


class OneByOne(IterDataPipe[Any]):
    """Samples that come one after the other."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[int]:
        yield from range(self.size)


@pytest.mark.parametrize("ahead", [None, 0, 3])
def test_in_process_a_users_pipe_is_one_as_without_a_loader(ahead: int | None) -> None:
    service = None if ahead is None else InProcessReadingService(ahead)
    made: list[Any] = [IterableWrapper(range(20)), IterableWrapper(iter(range(20))), OneByOne(20)]
    for source in made:
        assert read(Numbered(source.sharding_filter()), service) == [[(x, x) for x in range(20)]]
    pipe = Numbered(IterableWrapper(range(20)).sharding_filter())
    assert list(pipe) == [(x, x) for x in range(20)]


class Groups(IterDataPipe[Any]):
    """Collects three samples in a list that it was made with, and delivers them together."""

    def __init__(self, *sources: Any) -> None:
        self.sources = sources
        self.buffer: list[Any] = []

    def __iter__(self) -> Iterator[Any]:
        for source in self.sources:
            for x in source:
                self.buffer.append(x)
                if len(self.buffer) == 3:
                    yield list(self.buffer)
                    self.buffer.clear()
        if self.buffer:
            yield list(self.buffer)
            self.buffer.clear()


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.filterwarnings("ignore:Please use `InProcessReadingService`")
def test_copies_of_a_users_pipe_do_not_share_its_containers(count: int) -> None:
    pipe = Groups(IterableWrapper(range(7)).sharding_filter())
    assert read(pipe, workers(count, strands=2), epochs=2) == [[[0, 2, 4], [1, 3, 5], [6]]] * 2


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.filterwarnings("ignore:Please use `InProcessReadingService`")
def test_what_no_shard_point_divides_is_read_once_by_a_users_pipe(count: int) -> None:
    divided, other = IterableWrapper(range(4)).sharding_filter(), IterableWrapper("abcd")
    assert read(Groups(divided.zip(other)), workers(count)) == [[[(0, "a"), (1, "b"), (2, "c")], [(3, "d")]]]
    assert read(Groups(divided, other), workers(count)) == [[[0, 1, 2], [3, "a", "b"], ["c", "d"]]]
    assert read(Groups(divided.concat(other)), workers(count)) == [[[0, 1, 2], [3, "a", "b"], ["c", "d"]]]


class Lines(IterDataPipe[Any]):
    """A stream: its samples come one after the other; drawn by chance, and counted in `read`."""

    read: ClassVar[int] = 0

    def __iter__(self) -> Iterator[Any]:
        for x in range(40):
            type(self).read += 1
            yield x, random.random()


class Draws(Runs):
    def __iter__(self) -> Iterator[Any]:
        for x in self.source:
            yield x, random.random(), Lines.read, os.getpid()


@pytest.mark.parametrize("strands", [1, 3, 16])
def test_a_users_pipe_behind_a_stream_runs_in_workers_and_the_stream_is_read_once_in_each(strands: int) -> None:
    pipe = Draws(Lines().shuffle(buffer_size=5).sharding_filter()).batch(3)
    runs = []
    for count in (0, 1, 2, 4):
        Lines.read = 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            (batches,) = read(pipe, workers(count, strands=strands))
        places = {pid for batch in batches for *_, pid in batch}
        assert (os.getpid() in places) is (count == 0)
        assert len(places) == max(1, min(count, strands))
        assert max(seen for batch in batches for _, _, seen, _ in batch) == 40, "each process reads it once"
        runs.append([[x[:2] for x in batch] for batch in batches])
    assert all(run == runs[0] for run in runs), "values drawn at random are the same too"
    assert sorted(x for batch in runs[0] for (x, _), _ in batch) == list(range(40))


def test_a_users_pipe_behind_a_stream_goes_on_after_its_worker_was_killed_and_in_another_run() -> None:
    pipe = Draws(Lines().sharding_filter())
    (expected,) = read(pipe, workers(2))
    values = [x[:2] for x in expected]
    with DataLoader2(pipe, reading_service=workers(2)) as dl:
        dl.seed(0)
        samples = iter(dl)
        begun = [next(samples) for _ in range(7)]
        state = dl.state_dict()
        os.kill(dl.worker_pids()[0], signal.SIGKILL)
        assert [x[:2] for x in [*begun, *samples]] == values
    for service in (None, workers(1), workers(3)):
        with DataLoader2(pipe, reading_service=service) as dl:
            dl.load_state_dict(state)
            assert [x[:2] for x in [*begun, *dl]] == values


def test_a_copy_that_is_left_behind_reads_the_stream_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.doors.dataloader2 import shared_streams

    pipe = Draws(Lines().sharding_filter())
    (expected,) = read(pipe, None)
    monkeypatch.setattr(shared_streams, "MOST_KEPT", 1)
    (seen,) = read(pipe, None)
    assert [x[:2] for x in seen] == [x[:2] for x in expected]


class Breaks(Lines):
    def __iter__(self) -> Iterator[Any]:
        yield from range(20)
        raise ValueError("the stream is broken")


def test_a_stream_that_fails_is_an_error_in_workers_too() -> None:
    for service in (None, workers(2)):
        with DataLoader2(Runs(Breaks().sharding_filter()), reading_service=service) as dl:
            with pytest.raises(ValueError, match="the stream is broken") as failed:
                list(dl)
            assert "in Breaks" in "".join(failed.value.__notes__)


def test_what_can_be_read_only_once_stays_in_the_training_process() -> None:
    pipe = Runs(IterableWrapper(iter(range(20))).sharding_filter())
    (seen,) = read(pipe, workers(2))
    assert [x for x, i, _ in seen if i == 0] == list(range(20))


class Marked(Runs):
    mark = 0

    def __iter__(self) -> Iterator[Any]:
        return ((self.mark, x) for x in self.source)


def mark(pipe: Any, info: Any, seeds: Any = None) -> Any:
    pipe.mark = info.worker_id + 1
    return pipe


@pytest.mark.parametrize("hook", ["worker_init_fn", "worker_reset_fn"])
def test_a_graph_that_a_worker_function_changes_in_place_is_run_as_changed(hook: str) -> None:
    pipe = Marked(IterableWrapper(range(8)).sharding_filter())
    assert read(pipe, workers(2, **{hook: mark}), epochs=2) == [[(x % 2 + 1, x) for x in range(8)]] * 2


def test_batches_before_a_users_pipe_are_those_of_the_whole_stream() -> None:
    pipe = Runs(IterableWrapper(range(20)).sharding_filter().batch(8))
    (seen,) = read(pipe, workers(2))
    assert [x for x, i, _ in seen if i == 0] == [[*range(8)], [*range(8, 16)], [*range(16, 20)]]


def test_the_number_of_copies_is_in_the_state() -> None:
    pipe = Runs(IterableWrapper(range(20)).shuffle().sharding_filter())
    with DataLoader2(pipe, reading_service=workers(2, strands=3)) as dl:
        dl.seed(1)
        whole = [x[:2] for x in dl]
        dl.seed(1)
        samples = iter(dl)
        begun = [next(samples)[:2] for _ in range(17)]
        state = json.loads(json.dumps(dl.state_dict()))
    for service in (None, workers(1), workers(4, strands=7)):
        with DataLoader2(pipe, reading_service=service) as dl:
            dl.load_state_dict(state)
            assert begun + [x[:2] for x in dl] == whole


def test_a_dispatched_source_runs_once_and_what_follows_delivers_all() -> None:
    dispatch = SHARDING_PRIORITIES.MULTIPROCESSING
    for sharding in ("exact", "per-worker"):
        pipe = Runs(IterableWrapper(range(6))).sharding_round_robin_dispatch(dispatch).sharding_filter().map(list)
        (seen,) = read(pipe, workers(2, sharding=sharding))
        assert len({pid for _, _, pid in seen}) == 1
        assert [(x, i) for x, i, _ in seen] == [(x, i) for x in range(6) for i in range(3)]


class Odd(Exception):
    def __init__(self, number: int, why: str) -> None:
        super().__init__(number, why)
        self.number = number


def fail(x: int) -> int:
    if x == 5:
        raise Odd(x, "no fives")
    return x


@pytest.mark.parametrize("sharding", ["exact", "per-worker"])
def test_an_error_of_the_users_arrives_as_itself_and_says_which_worker(sharding: str) -> None:
    pipe = IterableWrapper(range(8)).sharding_filter().map(fail)
    with DataLoader2(pipe, reading_service=workers(2, sharding=sharding)) as dl:
        with pytest.raises(Odd) as caught:
            list(dl)
        assert caught.value.number == 5
        assert any("Caught Odd in worker process" in note for note in caught.value.__notes__)


def test_per_worker_functions_may_change_the_graph() -> None:
    pipe = IterableWrapper(range(6)).sharding_filter()
    service = workers(
        2, sharding="per-worker", worker_init_fn=lambda dp, info: dp.map(lambda x, w=info.worker_id: (w, x))
    )
    assert read(pipe, service, epochs=2) == [[(0, 0), (1, 1), (0, 2), (1, 3), (0, 4), (1, 5)]] * 2


def test_functions_in_process_change_the_graph() -> None:
    service = InProcessReadingService(
        init_fn=lambda dp, info: dp.map(str), reset_fn=lambda dp, info, seeds: dp.map(lambda s: s + "!")
    )
    first, second = read(IterableWrapper(range(2)), service, epochs=2)
    assert (first, second) == (["0!", "1!"], ["0!!", "1!!"])
    with pytest.raises(ValueError, match="init_fn must return a pipe"):
        read(IterableWrapper(range(2)), InProcessReadingService(init_fn=lambda dp, info: None))


def test_prefetching_in_process_changes_nothing() -> None:
    pipe = IterableWrapper(range(30)).shuffle().map(str)
    assert read(pipe, InProcessReadingService(prefetch_cnt=5), 2) == read(pipe, InProcessReadingService(), 2)


# --- arguments --------------------------------------------------------------------------------------------------------


def test_arguments_that_cannot_be_are_refused() -> None:
    with pytest.raises(AssertionError, match="Please choose one available multiprocessing context"):
        MultiProcessingReadingService(2, "threads")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="num_workers"):
        MultiProcessingReadingService(-1)
    with pytest.raises(ValueError, match="sharding must be"):
        MultiProcessingReadingService(2, sharding="some")  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match="Please use `InProcessReadingService` for num_workers=0"):
        service = MultiProcessingReadingService(0)
    assert read(IterableWrapper([1, 2]), service) == [[1, 2]]
    with pytest.warns(FutureWarning, match="deprecated"):
        assert isinstance(PrototypeMultiProcessingReadingService(1), MultiProcessingReadingService)


def test_one_service_serves_several_loaders() -> None:
    service = workers(1)
    pipe = IterableWrapper(range(5)).sharding_filter()
    one, two = DataLoader2(pipe, reading_service=service), DataLoader2(pipe, reading_service=service)
    with one, two:
        assert list(zip(one, two, strict=True)) == [(x, x) for x in range(5)]


def test_distributed_needs_torch_distributed() -> None:
    pytest.importorskip("torch")
    service = DistributedReadingService()
    with pytest.raises(RuntimeError, match="required to be initialized"):
        read(IterableWrapper([1]), service)
    with pytest.raises(ValueError, match="policy"):
        DistributedReadingService(policy="some")  # type: ignore[arg-type]


# --- caches behind a shard point --------------------------------------------------------------------------------------


class Unchanged(IterDataPipe[Any]):
    def __init__(self, source: Any) -> None:
        self.source = source

    def __iter__(self) -> Iterator[Any]:
        yield from self.source


class Stream:
    def __iter__(self) -> Iterator[int]:
        return iter(range(20))


def drawn(number: int) -> tuple[int, float]:
    return number, random.random()


@pytest.mark.parametrize("data", [list(range(20)), Stream()], ids=["list", "stream"])
@pytest.mark.parametrize("user", [False, True])
@pytest.mark.parametrize(
    "service", [InProcessReadingService(), workers(2), workers(2, sharding="per-worker")], ids=["none", "two", "copies"]
)
def test_what_is_cached_behind_a_shard_point_is_divided_and_stays(data: Any, user: bool, service: Any) -> None:
    pipe: Any = IterableWrapper(data).sharding_filter().map(drawn).in_memory_cache()
    first, second = read(Unchanged(pipe) if user else pipe, service, epochs=2)
    assert sorted(number for number, _ in first) == list(range(20))
    if user or isinstance(data, list) or service.settings(ReadSettings()).sharding == "per-worker":
        assert first == second  # (else it stands in the consumer, behind what the workers do, and caches nothing)


def test_a_cache_behind_a_shard_point_is_divided_among_ranks() -> None:
    pipe = IterableWrapper(list(range(20))).sharding_filter().in_memory_cache()
    shares = [list(build(pipe, ReadSettings(world=World(rank, 2)))) for rank in range(2)]
    assert shares == [list(range(0, 20, 2)), list(range(1, 20, 2))]


# --- services of the user's -------------------------------------------------------------------------------------------


class Noting(ReadingServiceInterface):
    def __init__(self, calls: list[str], name: str = "") -> None:
        self.calls = calls
        self.name = name

    def initialize(self, datapipe: Any) -> Any:
        self.calls.append(f"{self.name}initialize")
        self.pipe = datapipe
        return datapipe

    def initialize_iteration(self, seed_generator: Any, iter_reset_fn: Any = None) -> Any:
        self.calls.append(f"{self.name}begin")
        set_graph_random_seed(self.pipe, seed_generator)
        return iter_reset_fn

    def finalize_iteration(self) -> None:
        self.calls.append(f"{self.name}end")

    def finalize(self) -> None:
        self.calls.append(f"{self.name}finalize")


def test_the_callbacks_come_in_order() -> None:
    calls: list[str] = []
    with DataLoader2(IterableWrapper(range(20)).shuffle(), reading_service=Noting(calls)) as dl:
        first, second = list(dl), list(dl)
        samples = iter(dl)
        next(samples)
        assert calls == ["initialize", "begin", "end", "begin", "end", "begin"]
    assert calls[-2:] == ["end", "finalize"]
    assert first != second
    assert sorted(first) == list(range(20))


def with_ends(dl: Any, epochs: int) -> Iterator[Any]:
    """The samples of some epochs, with None where an epoch has ended."""
    for _ in range(epochs):
        yield from dl
        yield None


@pytest.mark.parametrize("read_before", range(8))
def test_a_state_of_a_service_of_ones_own_goes_on_in_its_epoch_or_with_the_next(read_before: int) -> None:
    pipe = IterableWrapper(range(3)).shuffle()
    with DataLoader2(pipe, reading_service=Noting([])) as dl:
        dl.seed(5)
        whole = list(with_ends(dl, 3))
    assert whole[:3] != whole[4:7]
    with DataLoader2(pipe, reading_service=Noting([])) as dl:
        dl.seed(5)
        samples = with_ends(dl, 3)
        before = [next(samples) for _ in range(read_before)]
        state = json.loads(json.dumps(dl.state_dict()))
    with DataLoader2.from_state(state, Noting([]), datapipe=pipe) as dl:
        if not before:
            dl.seed(5)
        after = list(with_ends(dl, 2))
    assert before + after == whole[: len(before + after)]


class Whole(ReadingServiceInterface):
    """Returns something that is no pipe."""

    def initialize(self, datapipe: Any) -> Any:
        return [list(datapipe)]


def test_a_service_may_return_any_iterable() -> None:
    assert read(IterableWrapper(range(3)), Whole(), epochs=2) == [[[0, 1, 2]]] * 2


def test_services_in_a_row_are_called_in_order_and_back() -> None:
    calls: list[str] = []
    service = SequentialReadingService(Noting(calls, "a "), Noting(calls, "b "), workers(1))
    assert sorted(read(IterableWrapper(range(9)).shuffle().sharding_filter(), service)[0]) == list(range(9))
    assert calls == [
        "a initialize", "b initialize", "a begin", "b begin", "b end", "a end", "b finalize", "a finalize",
    ]  # fmt: skip


class Counting(CheckpointableReadingServiceInterface):
    def __init__(self) -> None:
        self.started = 0

    def initialize(self, datapipe: Any) -> Any:
        self.started += 1
        return datapipe

    def checkpoint(self) -> bytes:
        return bytes([self.started])

    def restore(self, datapipe: Any, serialized_state: bytes) -> Any:
        self.started = serialized_state[0] + 10
        return datapipe


def test_a_service_with_a_state_gets_it_back() -> None:
    pipe = IterableWrapper(range(6))
    dl = DataLoader2(pipe, reading_service=SequentialReadingService(Counting(), InProcessReadingService()))
    samples = iter(dl)
    assert [next(samples), next(samples)] == [0, 1]
    state = dl.state_dict()
    again = DataLoader2.from_state(
        state, SequentialReadingService(Counting(), InProcessReadingService()), datapipe=pipe
    )
    assert list(again) == [2, 3, 4, 5]
    assert again.reading_service.reading_services[0].started == 11
    with pytest.raises(TypeError, match="Cannot restore from non-checkpointable reading service"):
        iter(DataLoader2.from_state(state, InProcessReadingService(), datapipe=pipe))


def test_services_without_a_state_of_their_own_are_exchanged_at_will() -> None:
    pipe = IterableWrapper(range(6))
    dl = DataLoader2(pipe, reading_service=SequentialReadingService(InProcessReadingService(), workers(1)))
    samples = iter(dl)
    assert [next(samples), next(samples)] == [0, 1]
    state = dl.state_dict()
    dl.shutdown()
    for service in (None, InProcessReadingService(), SequentialReadingService(InProcessReadingService())):
        assert list(DataLoader2.from_state(state, service, datapipe=pipe)) == [2, 3, 4, 5]


# --- seeds ------------------------------------------------------------------------------------------------------------


def test_a_seed_generator_has_a_shared_row_and_own_rows() -> None:
    a, b = SeedGenerator(5).spawn(0), SeedGenerator(5).spawn(1)
    assert [a.generate_shared_seed() for _ in range(3)] == [b.generate_shared_seed() for _ in range(3)]
    assert a.generate_seed() != b.generate_seed()
    assert SeedGenerator(5).generate_shared_seed() != SeedGenerator(6).generate_shared_seed()
    assert SeedGenerator(5).spawn(1).generate_seed() == SeedGenerator(5).spawn(1).generate_seed()
    with pytest.raises(ValueError, match="Expected `rank` equal or larger than 0"):
        a.spawn(-1)
    with pytest.raises(ValueError, match="Expected an uint64 seed"):
        SeedGenerator(2**64)


def test_epoch_numbers_are_distinct_and_go_up_with_small_seeds() -> None:
    numbers = [epoch_number(seed) + since for seed in (0, 1, 2, 2**42, 2**64 - 1) for since in range(4)]
    assert len(set(numbers)) == len(numbers)
    assert max(numbers) < 2**63
    assert numbers[:12] == sorted(numbers[:12])


def test_samples_are_made_where_the_service_says() -> None:
    def process(_: Any) -> int:
        return os.getpid()

    pipe = IterableWrapper(range(64)).sharding_filter().map(process)
    assert set(read(pipe, None)[0]) == {os.getpid()}
    assert os.getpid() not in set(read(pipe, workers(2))[0])


def test_what_cannot_travel_is_told_in_the_words_of_the_service() -> None:
    lock = threading.Lock()
    graph = IterableWrapper(range(3)).map(lambda x: (x, lock)[0])
    words = r"closure variable lock .*or use MultiProcessingReadingService\(multiprocessing_context='fork'\)$"
    with pytest.raises(NotPicklable, match=words):
        list(DataLoader2(graph, reading_service=MultiProcessingReadingService(1)))
