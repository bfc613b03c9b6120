"""The stream of a SwiftLoader: reproducible, in order, complete, whatever the threads, deaths and sizes are."""

import os
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.depth import depth
from tests.doors.swift_data import (
    Built,
    Numbers,
    Pairs,
    Random,
    Sized,
    batches,
    flat,
    noted,
    swift,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*more than the .* cores:RuntimeWarning")


def stream(epochs: int = 2, consumer: int = 0, **options: Any) -> list[list[list[int]]]:
    with swift(**options) as loader:
        loader.start(consumer)
        return batches(loader, epochs)


def test_the_delivered_stream_is_the_plan() -> None:
    with swift(kwargs=23, nearby_shuffle=4) as loader:
        loader.start(0)
        plan = loader._options.plan
        expected = [[plan.indices(23, epoch, 0, b) for b in range(len(loader))] for epoch in range(3)]
        assert batches(loader, 3) == expected


def test_each_epoch_over_all_consumers_is_disjoint_and_complete() -> None:
    shares = [stream(epochs=3, consumer=c, kwargs=37, nb_consumer=3, batch_size=4, seed=7 + c) for c in range(3)]
    for epoch in range(3):
        assert sorted(i for share in shares for i in flat(share[epoch])) == list(range(37))
    assert len({len(share[0]) for share in shares}) == 1


def test_the_stream_is_the_same_for_both_ways_of_threading_and_all_sizes_of_queues() -> None:
    coded = {"batch_encoder": np.ndarray.tobytes, "batch_decoder": np.frombuffer}
    want = stream(kwargs=31, multithread=True)
    assert stream(kwargs=31, multithread=False) == want
    assert stream(kwargs=31, data_queue_size=1, message_queue_size=1, max_buffer_size=0) == want
    plain = [[[float(i) for i in batch] for batch in epoch] for epoch in want]
    for multithread in (True, False):
        found = stream(kwargs=31, multithread=multithread, collate_fn=np.float64, **coded)
        assert found == plain


def test_the_same_seed_gives_the_same_stream_and_another_seed_another() -> None:
    assert stream(seed=1) == stream(seed=1)
    assert stream(seed=1) != stream(seed=2)
    assert stream(seed=1)[0] != stream(seed=1)[1]


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
@pytest.mark.parametrize("multithread", [True, False])
def test_order_is_kept_when_nothing_is_shuffled(workers: int, multithread: bool) -> None:
    found = stream(
        epochs=5, kwargs=97, shuffle=False, batch_size=5, worker_per_consumer=workers, multithread=multithread
    )
    assert [flat(epoch) for epoch in found] == [list(range(97))] * 5
    assert [len(b) for b in found[0]] == [5] * 19 + [2]


@pytest.mark.parametrize(("consumers", "workers", "size"), [(2, 1, 4), (3, 2, 5), (4, 3, 4)])
def test_consumers_in_their_order_are_the_dataset_in_its_order(consumers: int, workers: int, size: int) -> None:
    options = {"kwargs": 97, "shuffle": False, "nb_consumer": consumers, "worker_per_consumer": workers}
    shares = [stream(epochs=2, consumer=c, batch_size=size, **options) for c in range(consumers)]
    for epoch in range(2):
        assert [i for share in shares for i in flat(share[epoch])] == list(range(97))


def test_a_worker_reads_the_batches_of_its_own_arc() -> None:
    with swift(Pairs, 40, worker_per_consumer=2, batch_size=4) as loader:
        loader.start(0)
        for epoch in range(2):
            readers: dict[int, set[int]] = {}
            for indices, pids in loader:
                readers.setdefault(int(pids[0]), set()).update(indices.tolist())
            low, high = set(range(20)), set(range(20, 40))
            assert sorted(map(sorted, readers.values())) == [sorted(low), sorted(high)]
            first = next(iter(readers.values()))
            assert first == (low if epoch == 0 else high)


def test_length_is_what_is_delivered() -> None:
    for consumer in range(3):
        with swift(kwargs=50, nb_consumer=3, batch_size=4) as loader:
            loader.start(consumer)
            assert [len(epoch) for epoch in batches(loader, 3)] == [len(loader)] * 3


def test_a_killed_worker_changes_nothing() -> None:
    want = stream(epochs=3, kwargs=60)
    with swift(Pairs, 60) as loader:
        loader.start(0)
        found: list[list[list[int]]] = []
        for epoch in range(3):
            found.append([])
            for number, (indices, pids) in enumerate(loader):
                found[-1].append(indices.tolist())
                if number == 3 * epoch:
                    os.kill(int(pids[0]), signal.SIGKILL)
        engine = loader.stats().engine
    assert found == want
    assert engine is not None
    assert engine.retries >= 1


def test_growing_and_shrinking_batches_all_arrive() -> None:
    count = depth(300, 1000)
    sizes = [1 + (i * 7919) % 97 * (4000 if i % 10 == 0 else 3) for i in range(count)]
    with swift(Sized, {"sizes": sizes}, batch_size=1, shuffle=False, data_queue_size=2) as loader:
        loader.start(0)
        for index, batch in enumerate(loader):
            assert batch.shape == (1, sizes[index])
            assert (batch == index % 251).all()


def test_samples_that_grow_far_beyond_the_first_one_arrive() -> None:
    sizes = [10] * 4 + [8_000_000] + [10] * 3
    with swift(Sized, {"sizes": sizes}, batch_size=1, shuffle=False) as loader:
        loader.start(0)
        assert [batch.size for batch in loader] == sizes


def test_an_epoch_that_was_left_goes_on_at_the_next_loop() -> None:
    want = stream(epochs=2)
    with swift() as loader:
        loader.start(0)
        first = []
        for batch in loader:
            first.append(batch.tolist())
            if len(first) == 7:
                break
        rest = [batch.tolist() for batch in loader]
        assert [first + rest, *batches(loader, 1)] == want


def test_set_epoch_starts_an_epoch_from_its_beginning() -> None:
    want = stream(epochs=4)
    with swift() as loader:
        loader.start(0)
        next(loader)
        loader.set_epoch(loader.epoch)
        assert batches(loader, 1) == want[:1]
        loader.set_epoch(3)
        assert batches(loader, 1) == want[3:]
        assert loader.epoch == 4
    with swift() as loader:
        loader.set_epoch(2)
        loader.start(0)
        assert batches(loader, 1) == want[2:3]


def test_random_values_are_keyed_and_differ_by_epoch_consumer_and_sample() -> None:
    def values(consumer: int = 0, epoch: int = 0, **options: Any) -> dict[int, tuple[float, ...]]:
        with swift(Random, 24, nb_consumer=2, **options) as loader:
            loader.set_epoch(epoch)
            loader.start(consumer)
            columns = [np.concatenate(column) for column in zip(*loader, strict=True)]
        return {int(i): (float(a), float(b), float(c)) for a, b, c, i in zip(*columns, strict=True)}

    first = values()
    assert values() == first
    # A stream that began earlier comes to the same values.
    with swift(Random, 24, nb_consumer=2) as loader:
        loader.start(0)
        list(loader)
        second = {int(i): float(a) for batch in loader for a, i in zip(batch[0], batch[3], strict=True)}
    assert second == {i: v[0] for i, v in values(epoch=1).items()}
    everything = [v for c in (0, 1) for e in (0, 1) for sample in values(c, e).values() for v in sample]
    assert len(set(everything)) == len(everything)
    # headrace.rng() belongs to the sample, whatever the batches are.
    assert {i: v[2] for i, v in values(batch_size=5, worker_per_consumer=1).items()} == {
        i: v[2] for i, v in first.items()
    }


def test_the_users_random_state_is_left_alone() -> None:
    random.seed(5)
    np.random.seed(5)
    before = random.getstate(), np.random.get_state()[1].tolist()
    with swift(Random, 20, validate=True) as loader:
        loader.start(0)
        batches_seen = sum(1 for _ in loader)
    assert batches_seen
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


@pytest.mark.parametrize("validated", [False, True])
def test_the_dataset_is_built_once_in_each_worker_and_only_for_validation_here(tmp_path: Path, validated: bool) -> None:
    file = str(tmp_path / "built")
    with swift(Built, {"count": 20, "file": file}, validate=validated) as loader:
        assert noted(file) == [os.getpid()] * validated
        loader.start(0)
        batches(loader, 3)
    builders = noted(file)
    assert builders.count(os.getpid()) == validated
    assert len(builders) == len(set(builders)) == 2 + validated


def test_two_loaders_at_once_do_not_disturb_each_other() -> None:
    train, test = stream(kwargs=30), stream(kwargs=11, shuffle=False)
    with swift(kwargs=30) as one, swift(kwargs=11, shuffle=False) as other:
        one.start(0)
        other.start(0)
        pairs = list(zip(one, other, strict=False))
        assert [a.tolist() for a, _ in pairs] == train[0][: len(pairs)]
        assert [b.tolist() for _, b in pairs] == test[0]


def test_an_empty_dataset_and_an_empty_consumer_give_empty_epochs() -> None:
    with swift(Numbers, 0) as loader:
        loader.start(0)
        assert len(loader) == 0
        assert batches(loader, 2) == [[], []]
    with swift(Numbers, 1, nb_consumer=2) as loader:
        loader.start(1)
        assert batches(loader, 2) == [[], []]
