"""The contract of a SwiftLoader: its arguments, starting and ending, and what it says of itself."""

import os
import time
from typing import Any

import pytest

import headrace
from headrace.doors.swift.loader import SwiftLoader
from headrace.errors import BadOption, Closed
from headrace.observe.profile import profile
from tests.doors.swift_data import Numbers, batches, swift

pytestmark = pytest.mark.filterwarnings("ignore:.*more than the .* cores:RuntimeWarning")


def test_start_can_be_called_once() -> None:
    with swift() as loader:
        loader.start(0)
        with pytest.raises(RuntimeError, match="called already"):
            loader.start(0)
        assert len(batches(loader)[0]) == len(loader)


@pytest.mark.parametrize("index", [-1, 2, True, 0.0, "0"])
def test_an_index_that_is_no_consumer_is_refused_and_start_can_be_called_again(index: Any) -> None:
    with swift(nb_consumer=2) as loader:
        with pytest.raises(BadOption, match=r"one of 0\.\.1"):
            loader.start(index)
        loader.start(1)


def test_before_start_there_is_neither_length_nor_iterator() -> None:
    loader = swift()
    for use in (len, iter, next):
        with pytest.raises(RuntimeError, match=r"before start"):
            use(loader)
    loader.close()


def test_after_close_every_use_is_an_error_at_once_and_closing_again_is_none() -> None:
    loader = swift()
    loader.start(0)
    next(loader)
    loader.close()
    loader.close()
    for use in (len, iter, next, lambda x: x.start(0), lambda x: x.set_epoch(0)):
        with pytest.raises(Closed):
            use(loader)
    assert loader.stats().batches == 1


def test_a_loader_that_was_never_started_closes() -> None:
    with swift() as loader:
        pass
    with pytest.raises(Closed):
        loader.start(0)


def test_a_loader_that_is_dropped_leaves_nothing(no_new_fds: Any) -> None:
    loader = swift(logger={"stdout": True})
    loader.start(0)
    next(loader)
    del loader
    no_new_fds()


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ({"data_que_size": 3}, "did you mean 'data_queue_size'"),
        ({"seed_number": 3}, "did you mean 'seed_numer'"),
        ({"drop_last": True}, "it takes dataset_class"),
    ],
)
def test_an_unknown_argument_is_a_type_error_with_a_suggestion(wrong: dict[str, Any], hint: str) -> None:
    with pytest.raises(TypeError, match=hint):
        swift(**wrong)


def test_a_misspelt_name_is_told_before_the_argument_that_it_leaves_missing() -> None:
    with pytest.raises(TypeError, match="no argument 'nb_consumers'; did you mean 'nb_consumer'"):
        SwiftLoader(Numbers, {"count": 5}, 2, nb_consumers=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_size": 0},
        {"batch_size": 2.0},
        {"nb_consumer": 0},
        {"worker_per_consumer": True},
        {"data_queue_size": 0},
        {"message_queue_size": 0},
        {"max_buffer_size": -1},
        {"nearby_shuffle": -1},
        {"max_nb_batch_on_device": -1},
        {"shuffle": "yes"},
        {"multithread": 1},
        {"collate_fn": 3},
        {"batch_encoder": bytes},
        {"batch_decoder": bytes},
        {"benchmark": False, "benchmark_file": "x"},
        {"benchmark_file": 3},
        {"logger": 3},
        {"logger": {"file": "x"}},
        {"logger": {"levle": "INFO"}},
        {"logger": {"level": "LOUD"}},
        {"logger": {"path": 3}},
        {"seed": "x"},
    ],
)
def test_an_argument_with_a_wrong_value_is_refused_and_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadOption, match=next(iter(wrong)).split("_")[0]):
        swift(**wrong)


def test_the_dataset_must_be_given_as_a_class_and_a_dict() -> None:
    for dataset, kwargs in ((Numbers(3), {}), (Numbers, [3])):
        with pytest.raises(BadOption, match="dataset"):
            SwiftLoader(dataset, kwargs, 2, 1, 1)  # type: ignore[arg-type]


def test_the_names_of_the_documentation_are_accepted() -> None:
    def made(**names: int) -> SwiftLoader:
        return SwiftLoader(Numbers, {"count": 20}, batch_size=3, nb_consumer=1, **names)

    named = made(worker_per_consumer=2, seed=5).stats().arguments
    assert made(nb_worker_per_consumer=2, seed_numer=5).stats().arguments == named
    with pytest.raises(TypeError, match="twice"):
        made(worker_per_consumer=2, seed=5, seed_numer=5)
    with pytest.raises(TypeError, match="needs the argument 'worker_per_consumer'"):
        made()


def test_stats_show_every_argument_and_the_defaults_are_those_of_the_documentation() -> None:
    before = int(time.time() * 1000)
    loader = SwiftLoader(Numbers, {"count": 20}, 32, 1, 4)
    shown = loader.stats().arguments
    assert before <= shown.pop("seed") <= int(time.time() * 1000)
    assert shown == {
        "dataset_class": Numbers,
        "dataset_kwargs": {"count": 20},
        "batch_size": 32,
        "nb_consumer": 1,
        "worker_per_consumer": 4,
        "shuffle": True,
        "data_queue_size": 10,
        "message_queue_size": 10,
        "collate_fn": None,
        "logger": None,
        "batch_encoder": None,
        "batch_decoder": None,
        "nearby_shuffle": 160,
        "benchmark": True,
        "benchmark_file": None,
        "validate": True,
        "multithread": True,
        "max_nb_batch_on_device": 1,
        "max_buffer_size": 2,
    }
    assert SwiftLoader(Numbers, {"count": 20}, 32, 1, 2, data_queue_size=30).stats().arguments["max_buffer_size"] == 15


def test_stats_tell_what_has_happened() -> None:
    with swift(kwargs=20) as loader:
        assert loader.stats().consumer_index is None
        loader.start(0)
        batches(loader, 2)
        stats = loader.stats()
        assert (stats.consumer_index, stats.epoch, stats.batches) == (0, 2, 2 * len(loader))
        assert stats.engine is not None
        assert stats.engine.batches >= stats.batches


@pytest.mark.filterwarnings("error")
def test_too_many_workers_for_the_cores_are_one_warning_of_the_first_consumer() -> None:
    cores = len(os.sched_getaffinity(0))
    with swift(nb_consumer=cores + 1, worker_per_consumer=1) as loader:
        with pytest.warns(RuntimeWarning, match=rf"more than the {cores} cores") as caught:
            loader.start(0)
        assert len(caught) == 1
        assert caught[0].filename == __file__
    with swift(nb_consumer=cores + 1, worker_per_consumer=1) as loader:
        loader.start(1)
    with swift(worker_per_consumer=1) as loader:
        loader.start(0)


def test_consumers_that_cannot_have_equally_many_batches_are_a_warning() -> None:
    with swift(kwargs=5, nb_consumer=2, batch_size=1, worker_per_consumer=1) as loader:
        with pytest.warns(RuntimeWarning, match="consumer 0 gets 3 batches an epoch and the last one 2"):
            loader.start(0)
        assert len(loader) == 3


def test_the_index_defaults_to_the_rank_that_the_launcher_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    with swift() as loader:
        loader.start()
        assert loader.stats().consumer_index == 0
    for name, value in {"RANK": 5, "WORLD_SIZE": 6, "LOCAL_RANK": 2, "LOCAL_WORLD_SIZE": 3, "GROUP_RANK": 1}.items():
        monkeypatch.setenv(name, str(value))
    for consumers, index in ((3, 2), (6, 5)):  # of this machine; of all machines
        with swift(nb_consumer=consumers) as loader:
            loader.start()
            assert loader.stats().consumer_index == index
    with swift(nb_consumer=4) as loader, pytest.raises(BadOption, match="the launcher runs 6 ranks"):
        loader.start()


def test_without_a_launcher_several_consumers_need_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    with swift(nb_consumer=2) as loader, pytest.raises(BadOption, match="no launcher says"):
        loader.start()


def test_a_way_to_the_device_needs_a_device() -> None:
    with swift() as loader, pytest.raises(BadOption, match="no device"):
        loader.start(0, to_device=lambda batch, device: batch)


def test_a_loader_says_what_it_is() -> None:
    assert repr(swift()) == "SwiftLoader(Numbers, batch_size=3, nb_consumer=1, worker_per_consumer=2)"


def test_a_swift_loader_can_be_looked_at_as_any_other() -> None:
    with swift(Numbers, 40) as loader:
        with pytest.raises(RuntimeError, match="before start"):
            loader.explain()
        loader.start(0)
        assert len(batches(loader)) == 1
        engine = loader.stats().engine
        assert engine is not None
        assert engine.workers == 2
        assert "SwiftLoader(Numbers)" in loader.explain()
        assert repr(loader.loader) in headrace.dump()
        assert profile(loader.loader, batches=3, seconds=None).breakdown.batches == 3
