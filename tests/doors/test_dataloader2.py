"""DataLoader2: epochs, seeds, limits, states, errors, the end."""

import gc
import json
import os
import signal
import time
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace import Autosave
from headrace.datapipes import SequenceWrapper
from headrace.datapipes.adapter import Shuffle
from headrace.datapipes.iter import IterableWrapper
from headrace.doors.dataloader2.loader import DataLoader2
from headrace.doors.dataloader2.services import InProcessReadingService, MultiProcessingReadingService
from headrace.errors import BadOption, SnapshotRefused
from headrace.observe.profile import profile
from tests.depth import depth


def shuffled(n: int = 40) -> Any:
    return IterableWrapper(range(n)).shuffle().sharding_filter()


def service(workers: int) -> Any:
    return MultiProcessingReadingService(workers, "fork") if workers else InProcessReadingService()


@pytest.mark.parametrize("workers", [None, 0, 2])
def test_every_epoch_has_a_new_order_without_a_seed(workers: int | None) -> None:
    with DataLoader2(shuffled(), reading_service=None if workers is None else service(workers)) as dl:
        epochs = [list(dl) for _ in range(3)]
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert all(sorted(epoch) == list(range(40)) for epoch in epochs)


@pytest.mark.parametrize("workers", [None, 0, 2])
def test_a_seed_makes_the_next_epochs_reproducible(workers: int | None) -> None:
    with DataLoader2(shuffled(), reading_service=None if workers is None else service(workers)) as dl:
        dl.seed(5)
        first = [list(dl), list(dl)]
        dl.seed(6)
        other = list(dl)
        dl.seed(5)
        assert [list(dl), list(dl)] == first
    assert first[0] != first[1]
    assert other not in first


@pytest.mark.parametrize("workers", [0, 2])
def test_seeds_may_go_down(workers: int) -> None:
    stream = IterableWrapper(lambda: iter(range(700))).shuffle(buffer_size=20).sharding_filter().map(int)
    with DataLoader2(stream, reading_service=service(workers)) as dl:
        epochs = []
        for seed in (9, 8, 7, 6, 9):
            dl.seed(seed)
            epochs.append(list(dl))
    assert all(sorted(epoch) == list(range(700)) for epoch in epochs)
    assert epochs[0] == epochs[-1]


def test_seeds_that_cannot_be_are_refused() -> None:
    dl = DataLoader2(shuffled())
    for bad in (2**64, -1, 1.5):
        with pytest.raises(ValueError, match="Expected an uint64 seed"):
            dl.seed(bad)  # type: ignore[arg-type]
    dl.seed(2**64 - 1)
    assert sorted(dl) == list(range(40))


def test_without_a_seed_the_order_follows_torchs_own_seed() -> None:
    torch = pytest.importorskip("torch")
    state, seed = torch.random.get_rng_state(), torch.initial_seed()
    try:
        orders = []
        for given in (1, 2, 1):
            torch.manual_seed(given)
            orders.append(list(DataLoader2(shuffled())))
    finally:
        torch.manual_seed(seed)
        torch.random.set_rng_state(state)
    assert orders[0] == orders[2] != orders[1]


def test_the_length_is_known_where_it_can_be() -> None:
    assert len(DataLoader2(shuffled().batch(8))) == 5
    with pytest.raises(TypeError, match="not known in advance"):
        len(DataLoader2(shuffled().filter(lambda x: True)))


def test_tables_and_plain_iterables_are_loaded_too() -> None:
    assert list(DataLoader2(SequenceWrapper(["a", "b"]))) == ["a", "b"]
    assert list(DataLoader2([1, 2])) == [1, 2]


def test_adapters_change_a_copy_of_the_graph() -> None:
    pipe = shuffled()
    seen: list[Any] = []

    def note(graph: Any) -> Any:
        seen.append(graph)
        return graph.map(str)

    dl = DataLoader2(pipe, [Shuffle(False), note])
    assert list(dl) == [str(x) for x in range(40)]
    assert seen[0] is not pipe
    assert list(pipe) != list(range(40))


def test_an_iterator_that_was_replaced_says_so() -> None:
    dl = DataLoader2(shuffled())
    old = iter(dl)
    next(old)
    new = iter(dl)
    with pytest.raises(RuntimeError, match="iterator has been invalidated"):
        next(old)
    assert len(list(new)) == 40


def test_two_iterators_without_a_read_between_them_share_the_epoch() -> None:
    dl = DataLoader2(shuffled())
    dl.seed(0)
    iter(dl)
    first = list(iter(dl))
    dl.seed(0)
    assert list(dl) == first


@pytest.mark.parametrize("workers", [None, 0, 2])
def test_a_limit_pauses_and_resume_goes_on(workers: int | None) -> None:
    pipe = IterableWrapper(range(10)).sharding_filter()
    with DataLoader2(pipe, reading_service=None if workers is None else service(workers)) as dl:
        samples = iter(dl)
        samples.limit(3)
        assert list(samples) == [0, 1, 2]
        assert list(samples) == []
        samples.resume()
        assert list(samples) == [3, 4, 5]
        samples.resume()
        samples.limit(None)
        assert list(samples) == [6, 7, 8, 9]
        with pytest.warns(UserWarning, match="not paused"):
            samples.resume()
        samples = iter(dl)
        samples.limit(4)
        assert list(samples) == [0, 1, 2, 3]
        assert list(dl) == list(range(10)), "a new epoch is not paused"


def fails_at_seven(x: int) -> int:
    if x == 7:
        raise LookupError("seven")
    return x


@pytest.mark.parametrize("workers", [0, 2])
def test_the_loader_is_usable_after_an_error(workers: int) -> None:
    pipe = IterableWrapper(range(10)).sharding_filter().map(fails_at_seven)
    with DataLoader2(pipe, reading_service=service(workers)) as dl:
        for _ in range(2):
            with pytest.raises(LookupError, match="seven") as caught:
                list(dl)
            assert any("map(" in note for note in caught.value.__notes__), "the error names the operator"


def test_a_loader_that_was_shut_down_is_not_iterated_again() -> None:
    dl = DataLoader2(shuffled(), reading_service=service(2))
    next(iter(dl))
    dl.shutdown()
    dl.shutdown()
    with pytest.raises(RuntimeError, match="already been shut down"):
        iter(dl)
    with pytest.raises(RuntimeError, match="Please provide datapipe"):
        iter(DataLoader2(None))


def test_start_read_a_little_and_shut_down_many_times(no_new_fds: Any) -> None:
    pipe = shuffled(200).map(str)
    slowest = 0.0
    for number in range(depth(15, 1000)):
        dl = DataLoader2(pipe, reading_service=MultiProcessingReadingService(2, "fork"))
        for count, _ in enumerate(dl):
            if count == number % 7:
                break
        started = time.monotonic()
        dl.shutdown()
        slowest = max(slowest, time.monotonic() - started)
        if number == 2:
            gc.collect()
            no_new_fds()
    assert slowest < depth(20.0, 1.0)  # a deadline; the full counts hold the contract of one second


def test_a_killed_worker_changes_nothing() -> None:
    pipe = shuffled(60).map(int).batch(4)
    with DataLoader2(pipe) as dl:
        dl.seed(0)
        expected = list(dl)
    with DataLoader2(pipe, reading_service=service(2)) as dl:
        dl.seed(0)
        seen = []
        for batch in dl:
            seen.append(batch)
            if len(seen) == 3:
                os.kill(dl.worker_pids()[0], signal.SIGKILL)
    assert seen == expected


def test_unknown_attributes_are_asked_of_the_graph() -> None:
    dl = DataLoader2(shuffled().batch(batch_size=8))
    assert dl.batch_size == 8
    with pytest.raises(AttributeError):
        _ = dl.nothing


# --- states -----------------------------------------------------------------------------------------------------------


def test_a_state_is_plain_data_and_goes_on_in_mid_epoch() -> None:
    pipe = shuffled().map(str).batch(3)
    with DataLoader2(pipe, reading_service=service(2)) as dl:
        dl.seed(9)
        list(dl)
        samples = iter(dl)
        head = [next(samples) for _ in range(4)]
        state = json.loads(json.dumps(dl.state_dict()))
        tail = list(samples)
        after = list(dl)
    again = DataLoader2.from_state(state, service(0), pipe)
    assert again.state_dict() == state
    assert list(again) == tail
    assert list(again) == after
    assert head + tail != after
    with pytest.raises(RuntimeError, match="already been created"):
        again.load_state_dict(state)


def test_a_state_between_epochs_starts_the_next_one() -> None:
    dl = DataLoader2(shuffled())
    dl.seed(4)
    list(dl)
    state = dl.state_dict()
    second = list(dl)
    other = DataLoader2(shuffled())
    other.load_state_dict(state)
    assert list(other) == second


def test_what_is_no_state_is_refused() -> None:
    dl = DataLoader2(shuffled())
    good = dl.state_dict()
    for bad in ([], {}, {**good, "version": 1}, {**good, "next": -1}, {**good, "next": "x"}, {"version": 2}):
        with pytest.raises(SnapshotRefused):
            dl.load_state_dict(bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs datapipe="):
        DataLoader2.from_state(good)


def test_a_state_of_another_graph_names_the_operator_that_differs() -> None:
    dl = DataLoader2(shuffled().map(str))
    samples = iter(dl)
    next(samples)
    other = DataLoader2(shuffled().map(int))
    other.load_state_dict(dl.state_dict())
    with pytest.raises(SnapshotRefused, match="map"):
        iter(other)


def test_the_figures_name_the_operators() -> None:
    with DataLoader2(shuffled().map(str), reading_service=service(2)) as dl:
        list(dl)
        list(dl)
        figures = dl.stats()
        assert (figures.epochs, figures.batches, figures.workers) == (2, 80, 2)
        assert "map(" in dl.explain()
        assert profile(dl.loader, batches=3, seconds=None).breakdown.batches == 3
    with DataLoader2(shuffled().map(str)) as dl:
        assert "map(" in dl.explain(), "before the first epoch"


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_that_saves_itself_goes_on_after_the_last_batch_it_gave(tmp_path: Path, workers: int) -> None:
    def run(taken: int | None) -> list[Any]:
        reading = service(workers) if workers else None
        with DataLoader2(shuffled().batch(4), None, reading, autosave=Autosave(tmp_path / "place", every=1)) as dl:
            return list(islice(dl, taken))

    parts = [run(3), run(0), run(2), run(None)]
    assert sorted(x for part in parts for batch in part for x in batch) == list(range(40))
    assert len(run(None)) == 10, "nothing is left of the old epoch: the next one follows"


def test_on_ranks_it_does_not_save_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(
        BadOption, match=r"one of 2 ranks: .*'loader': loader\.state_dict\(\)\} on every rank, and give"
    ):
        DataLoader2(shuffled(), autosave=tmp_path / "place")


def test_dump_shows_what_the_workers_do() -> None:
    with DataLoader2(shuffled().map(str), reading_service=service(2)) as dl:
        samples = iter(dl)
        next(samples)
        assert "workers=2" in headrace.dump()
        assert "map(" in headrace.dump()
